// A click on a heading sorts its table by that column: numbers descending first, text ascending; a second click reverses.
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const body = table.tBodies[0], numbers = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const rising = before ? before === "descending" : !numbers;
      const value = ({ cells: { [column]: cell } }) => numbers ? Number(cell.dataset.number ?? NaN) : cell.textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (!numbers) return x.localeCompare(y) * (rising ? 1 : -1);
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);  // rows without a number sort last
        return (x - y) * (rising ? 1 : -1);
      };
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      body.append(...[...body.rows].sort(compare));
    });
  });
}

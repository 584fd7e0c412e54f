"""Write reports: tables (text, Markdown, HTML), charts (SVG), and documents made of both."""

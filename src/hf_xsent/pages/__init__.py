"""Report pages: one HTML file each that loads nothing, charts as inline SVG, light or dark as the reader has it."""

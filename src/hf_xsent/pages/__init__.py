"""Report pages: one HTML file each, without a network, charts as inline SVG, light or dark as the reader's system is."""

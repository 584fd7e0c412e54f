"""Write report pages: single HTML files that load nothing, with inline SVG charts, in light and dark mode."""

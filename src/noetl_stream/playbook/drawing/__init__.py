"""The workflow as a picture: Mermaid, DOT, SVG, or JSON for another program to draw."""

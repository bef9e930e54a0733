"""Drawings of a workflow: Mermaid, DOT, SVG, or JSON for another program to draw."""

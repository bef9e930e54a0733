"""From text to a compiled template: parse, bind names, find every problem."""

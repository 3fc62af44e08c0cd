"""What would someone do who only wants the points? Attacks built from a task's own gold and format, and what its rewards pay for them."""

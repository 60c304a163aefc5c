"""What processes, containers and devices do: messages to processes, and answers to people."""

"""A container's share of the node's network: read, fenced by token buckets on its veth, and measured."""

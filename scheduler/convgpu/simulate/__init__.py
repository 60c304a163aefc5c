"""Workloads in virtual time: hosts, jobs, and the schemes that share memory among them; pure."""

"""The ledger: accounts of containers on devices, and whether a grant or a limit leaves the state safe."""

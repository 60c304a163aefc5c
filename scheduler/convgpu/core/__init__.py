"""The pure core: the machine, `handle(event, now) -> Step`, its ledger, and decisions that need neither."""

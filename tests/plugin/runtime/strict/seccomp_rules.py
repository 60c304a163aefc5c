"""What libseccomp makes of a container's filter of system calls."""

ALLOW, ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"


def passes(seccomp, name, *arguments):
    """Tell what libseccomp does with a call: a rule that fits, else the default."""
    for rule in seccomp["syscalls"]:
        conditions = rule.get("args", ()) if name in rule["names"] else None
        if conditions is not None and all(
            arguments[row["index"]] & row["value"] == row["valueTwo"] for row in conditions
        ):
            return rule["action"] == ALLOW
    return seccomp["defaultAction"] == ALLOW

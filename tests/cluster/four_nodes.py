"""Slurm with four nodes on this machine, in namespaces of its own, beside an Engine with simulated cards for all.

The daemons are those of Debian 13, laid over this machine's /usr where only they see it. Nothing of the host changes,
and the end of the namespace's first process is the end of all of them.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from docker_engine import Engine, wait_for

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".cache/slurm"
NODES = ("n1", "n2", "n3", "n4")
CARDS = 2  # of each node
CARD = 16  # GiB
NETWORK = 100  # Gbit/s of each node, as Slurm counts
BRIDGE = "shared"  # a network of the Engine
ADDRESS = "10.9.8.1"  # with loopback alone getaddrinfo finds nothing
STARTING = 180.0  # seconds until all nodes are idle

SLURM_CONF = """\
ClusterName=convgpu
SlurmctldHost=head({address})
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,bf_max_job_test=1000
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=600
TopologyPlugin=topology/tree
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePass={folder}/munge/socket
PriorityWeightPartition=1000000
PriorityCalcPeriod=1
Include {folder}/etc/convgpu.conf
Include {folder}/etc/convgpu-controller.conf
PreemptExemptTime=0
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityJobFactor=0
PartitionName=short Nodes=ALL MaxTime=10 State=UP PriorityJobFactor=1
"""
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=head
DbdAddr={address}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageLoc=slurm
StorageUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""
NODE = "NodeName={name} NodeHostname=head NodeAddr={address} Port={port} CPUs=16 {gres} State=UNKNOWN"
TOPOLOGY = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=top Switches=s[0-1]\n"

# The first process of the namespaces, whose end ends all of them.
FIRST = """\
set -eu
mount -t overlay overlay -o lowerdir={programs}/usr:/usr /usr
hostname head
munged --foreground --force --key-file={folder}/munge/key --socket={folder}/munge/socket \
    --pid-file={folder}/munge/pid --log-file={folder}/munge/log --seed-file={folder}/munge/seed &
export MYSQL_UNIX_PORT={folder}/mariadb.socket
mariadbd --no-defaults --user=root --datadir={folder}/database --socket=$MYSQL_UNIX_PORT --skip-networking \
    --skip-grant-tables --innodb-buffer-pool-size=16M --innodb-log-file-size=4M --innodb-flush-log-at-trx-commit=0 &
until_there() {{ for _ in $(seq 200); do "$@" && return; sleep 0.05; done; echo "not there: $*"; exit 1; }}
until_there test -S {folder}/munge/socket
until_there test -S $MYSQL_UNIX_PORT
slurmdbd -D &
until_there sh -c 'sacctmgr -i -Q add cluster convgpu >/dev/null 2>&1'
sacctmgr -i -Q modify qos normal set preemptmode=requeue,within >/dev/null
slurmctld -D -c &
for node in {nodes}; do slurmd -D -N $node & done
wait
"""


def give_address() -> None:
    """Give this network namespace an address beside loopback; once."""
    if ADDRESS in subprocess.check_output(["ip", "-o", "address"], text=True):
        return
    subprocess.run(["ip", "link", "add", "slurm0", "type", "veth", "peer", "name", "slurm1"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/24", "dev", "slurm0"], check=True)
    for name in ("slurm0", "slurm1"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)


class FourNodes:
    """A cluster that runs until `close`; `folder` holds its configuration and logs."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.jobs = engine.directory / "convgpu/jobs"  # the plugin sees it through its mount `run`
        self.environment = {
            "PATH": f"{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "SLURM_CONF": f"{folder}/etc/slurm.conf",
            "DOCKER_HOST": engine.host,
        }
        self._prepare()
        give_address()
        self._configure()
        self.start()

    def _prepare(self) -> None:
        for name in ("etc", "munge", "state", "dev", *(f"spool/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)  # users reach munge's socket
        (self.folder / "state").chmod(0o700)
        (self.folder / "munge/key").write_bytes(os.urandom(128))
        (self.folder / "munge/key").chmod(0o600)
        for card in range(CARDS):
            os.mknod(self.folder / f"dev/nvidia{card}", 0o20666, os.makedev(1, 3))
        shutil.copytree(PROGRAMS / "database", self.folder / "database", dirs_exist_ok=True)
        slurmdbd = self.folder / "etc/slurmdbd.conf"
        slurmdbd.write_text(SLURMDBD_CONF.format(folder=self.folder, address=ADDRESS))
        slurmdbd.chmod(0o600)
        (self.folder / "etc/topology.conf").write_text(TOPOLOGY)
        (self.folder / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _configure(self) -> None:
        """Have `convgpu slurm setup` write its part for each node, and write the administrator's."""
        lines = []
        for number, node in enumerate(NODES):
            cards = [f"--card={number * CARDS + card}={self.folder}/dev/nvidia{card}" for card in range(CARDS)]
            places = (f"--directory={self.folder}/etc", f"--jobs={self.jobs}")
            site = ("--grace=20s", f"--network={NETWORK}gbit")
            told = self._convgpu("slurm", "setup", "--node", node, *places, *site, *cards)
            gres = next(word for word in told.split() if word.startswith("Gres="))
            lines.append(NODE.format(name=node, address=ADDRESS, port=17001 + number, gres=gres))
        text = SLURM_CONF.format(folder=self.folder, address=ADDRESS, nodes="\n".join(lines))
        (self.folder / "etc/slurm.conf").write_text(text)

    def _convgpu(self, *words: str) -> str:
        """Run the command outside of the namespaces."""
        done = subprocess.run(["convgpu", *words], check=False, capture_output=True, text=True, env=self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        """Start all daemons; the nodes are idle when it returns."""
        script = FIRST.format(programs=PROGRAMS, folder=self.folder, nodes=" ".join(NODES))
        enter = ["unshare", "--mount", "--propagation", "slave", "--uts", "--pid", "--fork", "--kill-child"]
        enter.append("--mount-proc")
        with (self.folder / "first.log").open("ab") as log:
            # setpriv: they do not outlive a pytest that is killed.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *enter, "bash", "-c", script],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for("the nodes are idle", self._idle, STARTING)

    def _idle(self) -> bool:
        assert self.process.poll() is None, (self.folder / "first.log").read_text()[-2000:]
        told = self.run("sinfo", "-h", "-N", "-p", "batch", "-o", "%T", check=False).stdout
        return told.split() == ["idle"] * len(NODES)

    def command(self, *words: str) -> list[str]:
        """Return the command that runs another one in the cluster's namespaces."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return ["nsenter", "--target", children[0] if children else "0", "--mount", "--uts", "--pid", "--", *words]

    def run(
        self, *words: str, check: bool = True, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as on the cluster's login node; a failure shows what it said."""
        done = subprocess.run(
            self.command("env", "-C", str(cwd or self.folder), *words),
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def __call__(self, *words: str) -> str:
        """Run a command; return what it printed."""
        return self.run(*words).stdout.strip()

    def log(self) -> str:
        """Return the ends of all logs."""
        texts = {path.name: path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log")}
        return "\n".join(f"{name}:\n{text}" for name, text in texts.items())

    def wait_for(self, what: str, condition: Callable[[], object], deadline: float = 180.0) -> object:
        """Poll until the condition holds; a failure shows the daemons' logs."""
        try:
            return wait_for(what, condition, deadline)
        except AssertionError as error:
            error.add_note(self.log())
            raise

    def close(self) -> None:
        """End all daemons and jobs, and remove their folder."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def enabled_plugin(engine: Engine) -> Iterator[None]:
    """Enable the plugin `convgpu` with the cards of all nodes, and authorization that gives them to jobs of Slurm."""
    devices = ",".join([f"{CARD}GiB"] * CARDS * len(NODES))
    rules = engine.directory / "etc/convgpu/rules.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text('require = "slurm"\n')
    sources = (f"run.source={engine.directory}", f"etc.source={engine.directory}/etc")
    # Its container may be held to a share of the network, on the bridge of Docker's that this Engine's own lacks.
    program = {"path": f"{ROOT}/.venv/bin/convgpu-runtime"}
    engine.configure({"runtimes": {"convgpu": program}})
    engine("network", "create", BRIDGE)
    settings = ("CONVGPU_AUDIT=1s", "CONVGPU_LEARN=1s", "CONVGPU_OVERUSE=stop", "CONVGPU_OVERUSE_AFTER=1s")
    engine("plugin", "set", "convgpu", f"CONVGPU_DEVICES=simulated:{devices}", *settings, *sources)
    engine("plugin", "enable", "convgpu")
    engine.wait_for_plugin("convgpu")
    engine.configure({"authorization-plugins": ["convgpu"]})
    yield
    engine.configure({"authorization-plugins": []})
    engine("plugin", "disable", "-f", "convgpu")
    engine("network", "rm", BRIDGE)


@contextmanager
def running_cluster(engine: Engine, folder: Path | None = None) -> Iterator[FourNodes]:
    """Start the cluster; at the end nothing of it is left."""
    place = folder or Path(tempfile.mkdtemp(prefix="sl", dir="/tmp"))
    cluster = FourNodes(engine, place)
    try:
        yield cluster
    finally:
        cluster.close()

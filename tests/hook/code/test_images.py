"""Variables that an image names are charged before it is loaded, or before they are first used."""

from collections.abc import Callable

from daemon import Daemon
from grown import CONTEXT, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
MODULE, LIBRARY, FAT_LIBRARY, FILE, PTX_MODULE, PTX_LIBRARY = range(6)


def test_an_image_beyond_the_limit_is_refused(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    for form in range(6):
        assert program.call(f"cubin {6 * GIB} {form}").code == OUT_OF_MEMORY
        assert usage(daemon) == CONTEXT
    assert program.call(f"alloc {2 * GIB - CONTEXT}").code == SUCCESS


def test_a_modules_variables_are_charged_once(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    for form in (MODULE, FILE, PTX_MODULE):
        module = program.call(f"cubin {GIB} {form}").number
        assert usage(daemon) == CONTEXT + GIB
        seen(daemon, CONTEXT + GIB)
        assert program.call(f"unload {module}").code == SUCCESS
        assert usage(daemon) == CONTEXT


def test_a_librarys_variables_are_promised_until_they_come(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    for use in ("launchkernel {kernel} 0 0", "load {kernel}", "variable {library}"):
        for form in (LIBRARY, FAT_LIBRARY, PTX_LIBRARY):
            library = program.call(f"cubin {GIB} {form}").number
            kernel = program.call(f"kernel {library}").number
            assert usage(daemon) == CONTEXT + GIB
            assert program.call(f"alloc {GIB}").code == OUT_OF_MEMORY
            assert program.call(use.format(kernel=kernel, library=library)).code == SUCCESS
            assert usage(daemon) == CONTEXT + GIB
            seen(daemon, CONTEXT + GIB)
            assert program.call(f"unloadlibrary {library}").code == SUCCESS
            assert usage(daemon) == CONTEXT


def test_a_library_that_was_never_used_gives_back_what_it_was_promised(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    library = program.call(f"cubin {GIB} {LIBRARY}").number
    assert program.call(f"unloadlibrary {library}").code == SUCCESS
    assert usage(daemon) == CONTEXT
    assert program.call(f"cubin {64 * MIB} {LIBRARY}").code == SUCCESS
    assert usage(daemon) == CONTEXT + 64 * MIB


def test_what_cannot_be_read_is_measured_and_undone(daemon: Daemon, join: Join) -> None:
    """Text of ours stands for a compressed image: its size is known when the driver has loaded it."""
    program = join(daemon.container("a", memory="2g"))
    assert program.call(f"module {6 * GIB} 0").code == OUT_OF_MEMORY
    assert usage(daemon) == CONTEXT
    seen(daemon, CONTEXT)

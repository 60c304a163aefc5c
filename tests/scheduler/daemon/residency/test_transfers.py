"""What a process is believed to have moved, and how fast memory moves."""

from convgpu.daemon.residency.rates import TransferRates
from convgpu.daemon.residency.transfers import Transfers


def test_no_more_is_believed_than_the_porter_has_copied() -> None:
    transfers = Transfers()
    transfers.ask("g", 10)
    transfers.copied["g"] += 4
    assert transfers.answer("g", 10, ended=False) == (4, 0)
    assert transfers.answer("g", 10, ended=True) == (0, 6)
    assert transfers.is_idle("g")


def test_the_end_of_an_order_says_nothing_of_the_next_one() -> None:
    transfers = Transfers()
    transfers.ask("g", 10)
    transfers.ask("g", 20)  # while the first was about to end
    transfers.copied["g"] += 30
    assert transfers.answer("g", 8, ended=True) == (8, 2)
    assert not transfers.is_idle("g")
    assert transfers.answer("g", 20, ended=True) == (20, 0)
    assert transfers.is_idle("g")


def test_an_order_whose_end_is_not_said_ends_with_its_last_byte() -> None:
    transfers = Transfers()
    transfers.ask("g", 10)
    transfers.copied["g"] += 12
    assert transfers.answer("g", 12, ended=False) == (12, 0)
    transfers.end_moved("g")
    assert transfers.is_idle("g")


def test_a_refusal_ends_all_orders_for_the_memory_of_some_may_be_freed() -> None:
    transfers = Transfers()
    for size in (10, 20, 30):
        transfers.ask("g", size)
    transfers.copied["g"] += 15
    assert transfers.answer("g", 15, ended=False) == (15, 0)
    assert transfers.end_all("g") == 45
    assert transfers.is_idle("g")


def test_what_a_second_porter_copied_anew_is_no_credit_for_later() -> None:
    transfers = Transfers()
    transfers.ask("g", 10)
    transfers.copied["g"] += 20
    assert transfers.answer("g", 10, ended=True) == (10, 0)
    transfers.ask("g", 10)
    assert transfers.answer("g", 10, ended=True) == (0, 10)


def test_a_rate_is_of_the_bytes_since_it_was_taken_last() -> None:
    rates = TransferRates()
    rates.add("g", 100, 10**9, inwards=False)
    rates.add("g", 200, 10**9, inwards=False)
    rates.add("g", 50, 10**9, inwards=True)
    assert [rates.take("g", inwards=inwards) for inwards in (False, True, False)] == [150.0, 50.0, 0.0]

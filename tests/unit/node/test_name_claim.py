"""Which session of a name a node takes for its own."""

from __future__ import annotations

from hashring.protocol.node.name_claim import NameClaim
from hashring.protocol.node.node_states import ClaimEvent, ClaimState
from hashring.store.ring.node_entries import NodeRecord


def test_the_last_session_before_a_stop_is_the_nodes_own_however_many_it_had() -> None:
    claim = NameClaim(named=True)
    claim.start("session-0", ClaimState.LOOKING)
    for number in range(1, 10):
        claim.goes_on_as(f"session-{number}")
    claim.start("after the stop", ClaimState.LOOKING)
    claim.began(1_000_000)
    claim.see(ClaimEvent.TAKEN)
    # Redis' clock was set back since: by the times, that session began later.
    assert claim.prevails(NodeRecord("session-9", {"started": 60.0}))
    assert not claim.prevails(NodeRecord("another process", {"started": 60.0}))

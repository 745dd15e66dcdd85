"""Views of producers and groups as of a position of group 0's log (D-8d): whole, difference, logged."""

from __future__ import annotations

from attrs import frozen

from zraft_core.ids import GroupId, ProducerId

Producers = tuple[ProducerId, ...]
Groups = tuple[GroupId, ...]


@frozen
class View:
    """All of it. `epoch` is that of the table of groups: every deletion raises it.

    `producers` may produce, `closed` may not any more but are not retired; `groups` exist, `deleting` among them are
    being deleted. Of these, the ones `given_up` take no part in anything any more. Ids are positions, too: an id up to
    `position` that is not listed is retired or removed for good.
    """

    position: int = 0
    epoch: int = 0
    producers: frozenset[ProducerId] = frozenset()
    closed: frozenset[ProducerId] = frozenset()
    groups: frozenset[GroupId] = frozenset()
    deleting: frozenset[GroupId] = frozenset()
    given_up: frozenset[GroupId] = frozenset()


@frozen
class ViewDelta:
    """Difference of views: the state of each id that changed after `base`, as of `position`.

    It fits views from `base` up to `position`.
    """

    base: int
    position: int
    epoch: int
    opened: Producers = ()
    closed: Producers = ()
    retired: Producers = ()
    created: Groups = ()
    deleting: Groups = ()
    removed: Groups = ()
    given_up: Groups = ()


AnyView = View | ViewDelta


@frozen
class Gone:
    """Producers and groups that are not listed any more since the last view, and groups that are given up since."""

    producers: tuple[ProducerId, ...] = ()
    groups: tuple[GroupId, ...] = ()
    given_up: tuple[GroupId, ...] = ()


class LoggedView:
    """The last view that a group has logged. Part of its replicated state, so what it says is equal on all replicas."""

    __slots__ = ("closed", "deleting", "epoch", "given_up", "groups", "position", "producers")

    def __init__(self, view: View) -> None:
        self.position = view.position
        self.epoch = view.epoch
        self.producers = set(view.producers)
        self.closed = set(view.closed)
        self.groups = set(view.groups)
        self.deleting = set(view.deleting)
        self.given_up = set(view.given_up)

    def retired(self, producer: ProducerId) -> bool:
        """Return whether the producer is closed, and nothing of it pending anywhere.

        This is told without remembering it.
        """
        return producer <= self.position and producer not in self.producers and producer not in self.closed

    def names(self, producer: ProducerId) -> bool:
        """Return whether the view knows the producer, open or closed."""
        return producer in self.producers or producer in self.closed

    def removed(self, group: GroupId) -> bool:
        """Return whether the group existed once and is removed."""
        return group <= self.position and group not in self.groups

    def silenced(self, group: GroupId) -> bool:
        """Return whether nothing that the group says counts any more: it is given up or removed.

        Messages of one that is gone may still arrive, and if it was given up, its servers may come back.
        """
        return group in self.given_up or (group not in self.groups and group <= self.position)

    def any_removed(self, groups: Groups) -> bool:
        """Return whether at least one of the groups is removed."""
        return not self.groups.issuperset(groups) and any(map(self.removed, groups))

    def fits(self, view: AnyView) -> bool:
        """Return whether `view` is newer, and begins no later than this one ends.

        An older one never counts (D-8d).
        """
        return view.position > self.position and (isinstance(view, View) or view.base <= self.position)

    def adopt(self, view: AnyView) -> Gone | None:
        """Become `view`; None, and nothing changes, if it does not fit."""
        if not self.fits(view):
            return None
        self.position, self.epoch = view.position, view.epoch
        if isinstance(view, View):
            return self._replace(view)
        self.producers.update(view.opened)
        self.producers.difference_update(view.closed, view.retired)
        self.closed.update(view.closed)
        self.closed.difference_update(view.retired)
        self.groups.update(view.created, view.deleting, view.given_up)
        self.groups.difference_update(view.removed)
        self.deleting.update(view.deleting, view.given_up)
        self.deleting.difference_update(view.removed)
        given_up = tuple(group for group in view.given_up if group not in self.given_up)
        self.given_up.update(view.given_up)
        self.given_up.difference_update(view.removed)
        return Gone(view.retired, view.removed, given_up)

    def _replace(self, view: View) -> Gone:
        producers = (self.producers | self.closed) - view.producers - view.closed
        groups = self.groups - view.groups
        self.producers, self.closed = set(view.producers), set(view.closed)
        given_up = view.given_up - self.given_up
        self.groups, self.deleting = set(view.groups), set(view.deleting)
        self.given_up = set(view.given_up)
        return Gone(tuple(sorted(producers)), tuple(sorted(groups)), tuple(sorted(given_up)))

    def whole(self) -> View:
        """Return the view without its history, as group 0 would send it."""
        return View(
            self.position,
            self.epoch,
            frozenset(self.producers),
            frozenset(self.closed),
            frozenset(self.groups),
            frozenset(self.deleting),
            frozenset(self.given_up),
        )

"""What is known of a batch before it runs, from the lists of a problem."""

import collections

Group = collections.namedtuple("Group", "adapter rank rows")


def groups_of(problem):
    """The rows of each adapter that has a rank, ascending by adapter and then by row."""
    order, starts, rank = problem.token_order, problem.group_starts, problem.rank
    return [Group(adapter, rank[adapter], sorted(order[starts[i]:starts[i + 1]]))
            for i, adapter in enumerate(problem.active_ids) if rank[adapter] > 0]


def columns_of(problem):
    """Where the slices begin among their columns, and the end of the last."""
    offsets = [0]
    for width in problem.widths:
        offsets.append(offsets[-1] + width)
    return offsets

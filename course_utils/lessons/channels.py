"""How the channels of a layer follow the kinds of things: what lesson 05 counts."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, SceneBatch


class Followed(NamedTuple):
    """How the channels of a layer follow the kinds of things, each (C, len(KINDS)), with numbers in [0, 1].

    share: of all that the channel responds to pictures with the kind, the part that lies on the thing.
    tells: of all pairs of a picture with the kind and one without, the part in which the channel responds more to the
        picture with it; 0.5 is chance. (The area under the ROC curve.)
    """

    share: Tensor
    tells: Tensor

    def best_channel(self, kind: str) -> int:
        """The channel that follows a kind best, in both respects: the greatest product of the two."""
        return int((self.share * self.tells)[:, KINDS.index(kind)].argmax())


def follow_things(maps: Tensor, batch: SceneBatch) -> Followed:
    """Measure how each channel follows each kind of thing: maps (N, C, h, w) of the pictures of `batch`.

    Raises `CourseError` for another number of maps than pictures, or if a kind is in none or in all of them.
    """
    if len(maps) != len(batch):
        raise CourseError(f"{len(batch)} pictures need as many maps, got {len(maps)}")
    positive, there = maps.clamp(min=0).flatten(2), batch.labels > 0
    kinds = batch.labels.topk(int(there.sum(1).max()), 1).indices  # of each picture; what it does not show has no mask
    covered = F.adaptive_avg_pool2d((batch.owners[:, None] == kinds[..., None, None] + 1).float(), maps.shape[2:])
    on_things = (positive @ covered.flatten(2).mT).movedim(1, 0).flatten(1)
    on, responses = torch.zeros(maps.shape[1], len(KINDS)), positive.sum(2)
    on.index_add_(1, kinds.flatten(), on_things)
    for kind, seen in zip(KINDS, there.T, strict=True):
        if seen.all() or not seen.any():
            raise CourseError(f"of {len(batch)} pictures, {int(seen.sum())} show a {kind}: take more pictures")
    share = on / (responses.T @ there.float()).clamp(min=1e-12)
    return Followed(share, torch.stack([tells(responses, seen) for seen in there.T], dim=1))


def tells(responses: Tensor, there: Tensor) -> Tensor:
    """In which share of all pairs of a picture with the thing and one without it, a channel responds more to the first.

    responses: (N, C); there: (N,) bool. (C,): 1 is perfect, 0.5 is chance.
    """
    one, other = responses[there][:, None], responses[~there][None]
    return ((one > other).float() + (one == other).float() / 2).mean((0, 1))

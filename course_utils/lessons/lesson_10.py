"""Exercises and predictions of lesson 10: where next?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_utils.exercises.cases import Case, Numbers
from course_utils.exercises.engine import exercise, prediction
from course_utils.lessons.blind import (
    ACCEPTED,
    LETTERS,
    SUSPECTS,
    Album,
    Proof,
    add,
    answers_changed,
    case_pictures,
    fresh_pictures,
    remove,
    says_fish,
    seal,
    weigh,
)

# --- part 1: a blind investigation ------------------------------------------------------------------------------------

prediction(
    "taken_away",
    lesson=10,
    question="the twenty pictures of the case, and one of the four suspects is removed at a time. For how many of the "
    "networks A to D does one such removal turn most of the answers into 'no'?",
    options={
        1: "The four networks have learned different things, and each of those is among the four suspects.",
        2: "Nearly: one more is persuaded by a single removal, and one by none of them.",
        3: "Each of these takes one thing for a fish. The fourth network is not persuaded by any single removal.",
        4: "That would be so if each network had one cause. Nothing in the test says that it has only one.",
    },
    answer=3,
    why="""
        Three networks take nearly all their answers back after one removal. The fourth takes back none, whatever is
        removed.

        So none of the four suspects is a cause for it? That does not follow. Perhaps there are two causes, and each is
        **enough** by itself. Then neither is **needed**: after one is removed, the other is still there. An experiment
        that only takes things away cannot find such causes. One that starts from pictures without any suspect, and
        adds them one at a time, can.
    """,
    ask={
        1: "In the explorer you looked for one single change after which a network says no. For how many of the four "
        "did you find one?",
        2: "Two networks would then keep their answers, whichever single thing is removed. What would such a network "
        "have to look at?",
        4: "A network says 'fish' if it sees the one or the other of two things. Both are there, and you remove one: "
        "what does it say?",
    },
)
prediction(
    "where_hottest",
    lesson=10,
    question="the twenty pictures of the case. For how many of the networks A to D is Grad-CAM's map for 'fish' "
    "hottest at one of the causes that you have proved, in most of the pictures?",
    options={
        1: "One network's map in the explorer may have looked wrong. Over twenty pictures, more of them do well.",
        2: "You have seen maps that mislead. Here the networks are small and the causes few, so the maps do well.",
        3: "Perhaps you left out the network with two causes. Its maps are hottest at the one or at the other.",
        4: "The suspicion was good. It was still no proof: read on.",
    },
    answer=4,
    why="""
        For all four: each of the eighty maps is hottest at a cause of its network. So the maps had raised the right
        suspicions.

        But look at the network with two causes. In 14 pictures its map is hottest at one of them, in 9 at the other,
        and in three of these the ring is near both. No map says that the place below the ring could go without any
        effect, and none says that nothing else would do. What is **enough**, what is **needed**, and what does **not**
        matter: only an experiment tells these apart.
    """,
    ask={
        1: "Put your suspicions from the explorer beside your proofs. For how many networks had the ring shown you a "
        "right one?",
        2: "Which two networks did you leave out? What lay below the ring there, and did it prove to be a cause?",
        3: "A network has two causes. The ring is at the one in some pictures, at the other in the rest. Does it count "
        "here?",
    },
)


@exercise(
    lesson=10,
    points=4,
    hints=[
        "Which pictures show what one suspect does by itself? Take the fresh pictures, in which there is none of them.",
        "Make one pair for each suspect: the fresh pictures, and the same pictures with this suspect alone. The pairs "
        "in which the answers stay are your control, and they separate the four networks as well.",
        "`pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]`; the causes are those suspects for which "
        "`answers_changed(letter, before, after)` is large.",
    ],
)
def prove(letter, pictures):
    """Return a `Proof(causes, pairs)`: what network `letter` takes for a fish, and
    the experiment that proves it.

    `letter` is "A", "B", "C" or "D". `pictures` is an album of fresh pictures, in
    which there is none of the suspects. `causes` is the name of a suspect, or a list
    of names. `pairs` is a list of pairs of albums (before, after), made from
    `pictures`: each cause is changed alone in one of them and changes most answers;
    something else is changed alone, for control; and no other network gives the
    same answers to all of them.
    """
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes, pairs)


@prove.cases
def _(rng):
    pictures = fresh_pictures(12, rng.integer(100, 99_999))

    def judged(letter):
        def look(proof):
            verdict = weigh(letter, pictures, proof)
            wrong = "nothing" if verdict == ACCEPTED else verdict.removeprefix("refused: ")
            return {"what was wrong with your proof": wrong, "its seal": seal(letter, pictures, proof, verdict)}

        return look

    for letter in LETTERS:
        shown = f"network {letter} and {len(pictures)} fresh pictures (from number {pictures.shots[0].number} on)"
        yield Case({"letter": letter, "pictures": pictures}, judged(letter), shown)


@prove.accept
def _(letter, pictures):
    causes, pairs = [], []
    for name in SUSPECTS:
        before = add(pictures, name)
        after = remove(before, name)
        pairs.append((before, after))
        if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2:
            causes.append(name)
    return Proof(causes, pairs)


@prove.accept
def _(letter, pictures):
    pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != "water"}
    effects = {name: answers_changed(letter, *pair) for name, pair in pairs.items()}
    return Proof([name for name, effect in effects.items() if effect > 0.5], list(pairs.values()))


prove.equivalent(
    "The water may be tested as well: it is a control like the others.",
    "no filter: - pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != 'water'} + "
    "pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS}",
)
prove.equivalent(
    "An experiment is the same in every order of its pairs, and a verdict in every order of its causes.",
    "backwards: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in list(zip(SUSPECTS, pairs, "
    "strict=True))[::-1] if answers_changed(letter, *pair) > 0.5]",
    "backwards: - for name in SUSPECTS: + for name in list(SUSPECTS)[::-1]:",
    "backwards: - pairs = {name: (pictures, add(pictures, name)) for name in SUSPECTS if name != 'water'} + "
    "pairs = {name: (pictures, add(pictures, name)) for name in list(SUSPECTS)[::-1] if name != 'water'}",
    "backwards: - effects = {name: answers_changed(letter, *pair) for name, pair in pairs.items()} + effects = "
    "{name: answers_changed(letter, *pair) for name, pair in list(pairs.items())[::-1]}",
    "backwards: - return Proof([name for name, effect in effects.items() if effect > 0.5], "
    "list(pairs.values())) + return Proof([name for name, effect in list(effects.items())[::-1] if effect > "
    "0.5], list(pairs.values()))",
)
prove.equivalent("A letter has no second part.", "of an argument the first only: + letter = letter[:1]")
prove.equivalent(
    "The effects are near none or near all, so that every limit between them gives the same causes.",
    "compare otherwise: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs, "
    "strict=True) if answers_changed(letter, *pair) >= 0.5]",
    "compare otherwise: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) "
    "/ 2: + if says_fish(letter, before).sum() >= says_fish(letter, after).sum() + len(pictures) / 2:",
    "compare otherwise: - return Proof([name for name, effect in effects.items() if effect > 0.5], "
    "list(pairs.values())) + return Proof([name for name, effect in effects.items() if effect >= 0.5], "
    "list(pairs.values()))",
    "one operand: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2: + "
    "if says_fish(letter, before).sum() > len(pictures) / 2:",
    "one operand: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 2: + "
    "if says_fish(letter, before).sum() > says_fish(letter, after).sum() + 2:",
    "other constant: - if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / "
    "2: + if says_fish(letter, before).sum() > says_fish(letter, after).sum() + len(pictures) / 3:",
)
prove.equivalent(
    "There is a pair for each suspect, so nothing can be left over.",
    "an argument less: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs) if "
    "answers_changed(letter, *pair) > 0.5]",
    "other constant: - causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if "
    "answers_changed(letter, *pair) > 0.5] + causes = [name for name, pair in zip(SUSPECTS, pairs, "
    "strict=False) if answers_changed(letter, *pair) > 0.5]",
)
prove.equivalent(
    "Pairs may come in whatever can be gone through.",
    "no call: - return Proof([name for name, effect in effects.items() if effect > 0.5], list(pairs.values())) "
    "+ return Proof([name for name, effect in effects.items() if effect > 0.5], pairs.values())",
)


@prove.mistake(
    "You asked about one picture. What happens there may be an accident of this picture: change all of the fresh ones."
)
def _(letter, pictures):
    one = Album(pictures.shots[:1])
    pairs = [(one, add(one, each)) for each in SUSPECTS]
    return Proof([name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair)], pairs)


@prove.mistake(
    "Two things change at once in your pairs. If the answer changes, you cannot say which of the two did it: change "
    "one, and leave the other as it is."
)
def _(letter, pictures):
    pairs = [(pictures, add(add(pictures, each), "sun")) for each in SUSPECTS if each != "sun"]
    names = [each for each in SUSPECTS if each != "sun"]
    return Proof([name for name, pair in zip(names, pairs, strict=True) if answers_changed(letter, *pair) > 0.5], pairs)


@prove.mistake(
    "Your experiment has no control. Change something that you do not suspect as well: if the answers changed there "
    "too, any change would do, and the cause would be none."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found, [(pictures, add(pictures, each)) for each in found])


@prove.mistake(
    "You took a correlation for the cause: in the pictures of the test the water was always there when there was a "
    "fish. Your own experiment says that the water alone changes nothing."
)
def _(letter, pictures):
    return Proof("water", [(pictures, add(pictures, each)) for each in SUSPECTS])


@prove.mistake(
    "You trusted the score: all four networks find the fish in the test. Your own experiment says that the fish alone "
    "changes nothing for most of them."
)
def _(letter, pictures):
    return Proof("fish", [(pictures, add(pictures, each)) for each in SUSPECTS])


@prove.mistake(
    "You compared pictures with the suspect to other pictures without it, and everything else differs between them "
    "too. Take the same pictures for before and after."
)
def _(letter, pictures):
    half = len(pictures) // 2
    with_it, without = Album(pictures.shots[:half]), Album(pictures.shots[half:])
    pairs = [(without, add(with_it, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found or ["fish"], pairs)


@prove.mistake(
    "You experimented on the pictures of the test, from which you had your suspicion. A proof is made on pictures that "
    "had no part in it: use the argument `pictures`."
)
def _(letter, pictures):
    case = case_pictures(12)
    pairs = [(case, remove(case, each)) for each in SUSPECTS]
    found = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(found or ["buoy"], pairs)


@prove.mistake(
    "You stopped at the first cause that you found. For one network something else changes the answers as well, and "
    "your own experiment shows it."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes[:1], pairs)


@prove.mistake(
    "You only took things away, from pictures in which everything was there. Where one of two causes is enough, taking "
    "one away changes nothing, because the other one is left. Put them in alone as well."
)
def _(letter, pictures):
    full = pictures
    for each in SUSPECTS:
        full = add(full, each)
    pairs = [(full, remove(full, each)) for each in SUSPECTS]
    causes = [name for name, pair in zip(SUSPECTS, pairs, strict=True) if answers_changed(letter, *pair) > 0.5]
    return Proof(causes, pairs)


@prove.mistake(
    "What you name changes few answers alone, or none. Ask for most of them, and put things in as well as taking them "
    "away: where one of two causes is enough, taking one away changes nothing, because the other one is left."
)
def _(letter, pictures):
    full = pictures
    for each in SUSPECTS:
        full = add(full, each)
    pairs = [(full, remove(full, each)) for each in SUSPECTS]
    effects = [answers_changed(letter, *pair) for pair in pairs]
    return Proof(SUSPECTS[effects.index(max(effects))], pairs)


@prove.mistake(
    "The cause is right and tested, and another network would answer all your pairs in the same way. Add a pair that "
    "separates the two: change what the other network reacts to."
)
def _(letter, pictures):
    effects = {name: answers_changed(letter, pictures, add(pictures, name)) for name in SUSPECTS}
    causes = [name for name, effect in effects.items() if effect > 0.5]
    return Proof(causes, [(pictures, add(pictures, each)) for each in [*causes, "sun"]])


@prove.mistake(
    "A cause is written as in the list of suspects: one of those words, or a list of some, and nothing else."
)
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    return Proof(["the " + each for each in SUSPECTS], pairs)


@prove.mistake("You returned a tuple. Give both parts to `Proof`, and return what it makes of them.")
def _(letter, pictures):
    pairs = [(pictures, add(pictures, each)) for each in SUSPECTS]
    return SUSPECTS[0], pairs


# --- parts 2 to 5: methods on trial, channels, tokens -----------------------------------------------------------------

prediction(
    "heat_behind_the_cut",
    lesson=10,
    question="behind the last convolution, the right-hand half was cut off. Which methods still put heat on the last "
    "four columns, whose true attribution is 0?",
    options={
        "none of them": "So one would hope. But one weight for a whole channel cannot know where the cut is.",
        "only occlusion": "Occlusion runs the network without these columns, and finds that nothing changes.",
        "Grad-CAM and Grad-CAM++": "They give each channel one weight, and the maps themselves are not cut.",
        "all but occlusion": "The gradient at a place that reaches nothing is 0, so whatever multiplies place by place "
        "is 0 there too.",
    },
    answer="Grad-CAM and Grad-CAM++",
    why="""
        Nothing in the last four columns reaches a logit, so the gradient is 0 there. HiResCAM, LayerCAM, Integrated
        Gradients and SmoothGrad multiply by it place by place, and occlusion finds no difference. So all of them are 0
        in these columns, as they should be.

        Grad-CAM takes the *mean* gradient of a channel, and Grad-CAM++ another sum over all places. Each channel gets
        one weight, and it is multiplied by maps that are not 0 there. So both say that places count which cannot count.
        A mean over all places forgets where it came from. Nothing is lost only if the gradient is the same at every
        place, as with average pooling directly behind the maps (lesson 07).
    """,
    ask={
        "none of them": "Grad-CAM multiplies each map by one weight. What do the maps have in the last four columns, "
        "and which weight do they get there?",
        "only occlusion": "Occlusion sets a place in the last columns to 0 and runs the rest again. By how much does "
        "the logit change?",
        "all but occlusion": "What is the gradient at one place in the last columns? Which formulas multiply by it, "
        "place by place?",
    },
)
prediction(
    "first_in_every_column",
    lesson=10,
    question="drawn pictures and collages, with two scores each, point and share. Which method is first in all four "
    "columns?",
    options={
        "Grad-CAM": "It is the best known of them. Look at which columns it wins, and where it falls behind.",
        "Integrated Gradients": "It has the best theory. Look at its share.",
        "occlusion": "It is an experiment and no gradient. Look at its hottest point.",
        "none of them": "The score decides, and so does the network.",
    },
    answer="none of them",
    why="""
        By the hottest *point* in the drawn pictures, Integrated Gradients and SmoothGrad come first. By the *share*,
        Grad-CAM does, whose point is the worst but one. On new pictures, the difference of the shares stays. That
        of the points is half as large there, and its interval contains 0. It was looked at because it was large, and
        such differences tend to shrink.

        Another reversal is far from chance. HiResCAM has a larger share than LayerCAM on the drawn pictures, and a much
        smaller one in the collages, where it is at 4% and an even map would have 50%. LayerCAM comes first there.

        One reason, which no cell here shows: behind this layer of EfficientNet, batch norm adds constants, and a
        gradient knows nothing of constants. So HiResCAM's numbers need not add up to the logit. (Their sum is -6 in
        the mean, for logits of about 4.) And the layer decides too: at the very last one, Grad-CAM had 94% of its heat
        in the correct half (lesson 07), and here it has 42%.

        The controls: with random weights, all methods fall to 14% or 15%, where an even map has 9%. Edges have seen no
        network and reach 23%, more than Grad-CAM++. So a map that finds things may have found edges. There is no
        winner. The score decides, the network decides, and the layer decides.
    """,
    ask={
        "Grad-CAM": "In which of the four columns is Grad-CAM first? How many methods have a better point in the drawn "
        "pictures?",
        "Integrated Gradients": "By the point in the drawn pictures, Integrated Gradients does come first. What does "
        "the share count that the point leaves out?",
        "occlusion": "An answer rests on two places, and each of them is enough. What does occlusion find when it "
        "covers one?",
    },
)
prediction(
    "best_of_96",
    lesson=10,
    question="in a network with random weights, we choose the best of 96 channels for cars. How good is it on the "
    "pictures that it was chosen on? (1 is perfect, 0.5 is a coin.)",
    options={
        "about 0.5": "A channel picked blindly has that. This one was chosen for its score.",
        "about 0.8": "Among 96 random filters there is always one that responds more to cars, on these pictures.",
        "about 1": "That is what training brings.",
    },
    answer="about 0.8",
    why="""
        It is 0.79 to 0.84 in these three, and 0.74 to 0.90 in twenty that we tried. On new pictures much of that is
        gone, or all of it, or nothing: from 0.29 to 0.88 in the twenty. So "I have found a channel that tells cars
        with 0.84" says nothing about training, and a single random network says little about chance.

        The trained network's best channel has 1.00 on both. Put the score of a chosen channel beside the best of as
        many by chance, on new pictures, and in more than one network.
    """,
    ask={
        "about 0.5": "You throw 96 coins ten times each. How many heads does the best of them have?",
        "about 1": "Nobody taught these filters what a car is. What else in a picture could make the best of them "
        "respond?",
    },
)
prediction(
    "probe_of_a_random_network",
    lesson=10,
    question="a probe reads the background of new pictures off the trained network. How well does it do at the same "
    "layer of the network with random weights?",
    options={
        "at 20%, which is chance": "Random filters still respond to colours and edges, and backgrounds differ in both.",
        "better than chance, and worse than with training": "Training taught the network to tell things, whatever the "
        "background is.",
        "better than with training": "Training for things throws away what does not help to tell them.",
    },
    answer="better than with training",
    why="""
        The background is read from 84% of the new pictures with random weights, and from 31% with trained ones.
        What does not help to tell things is hard to read behind the last layer, at least for a linear probe.

        The control task says the same from the other side. With trained weights, the probe reads an *arbitrary* number
        of the pair of things from 51% of the new pictures, because this layer knows the things. With random weights it
        reads it from 22%, and who always says the most frequent number is right in 29%. So the score of a probe says
        what is easy to read. It does not say what was learned, nor what is used. And compare its two columns: with 96
        numbers for 90 pictures, the probe of the random network has learned much of the control by heart.
    """,
    ask={
        "at 20%, which is chance": "The sky is blue and the grass is green. Does a filter with random weights give the "
        "same number for both?",
        "better than chance, and worse than with training": "A cat on grass and a cat in a room need the same answer. "
        "What will training do with the difference between the two?",
    },
)


# --- small networks and methods for the cases -------------------------------------------------------------------------


def positive_net(rng: Numbers) -> nn.Sequential:
    """Two mixing layers and a head, whose numbers are all above 0: each place of each channel speaks for each class."""
    net = nn.Sequential(
        nn.Conv2d(2, 2, 1, bias=False),
        nn.ReLU(),
        nn.Conv2d(2, 2, 1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 3),
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(rng.whole(*parameter.shape) / 4)
    return net


class Asked:
    """A method of the cases: a gradient at the picture, times the picture.

    kind: "each place", "mean" over all places, or "both", one after the other, added up.
    """

    def __init__(self, image: Tensor, target: int, kind: str) -> None:
        self.image, self.target, self.kind = image, target, kind

    def __call__(self, model: nn.Module) -> Tensor:
        """Return a map (h, w) with a sign."""
        gradients = []
        for kind in ("mean", "each place") if self.kind == "both" else (self.kind,):
            image = self.image.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(model(image)[0, self.target], image)
            gradients.append(gradient if kind == "each place" else gradient.mean((2, 3), keepdim=True))
        return (sum(gradients) * self.image)[0].sum(0)


@exercise(
    lesson=10,
    points=2,
    hints=[
        "The network has to be cut while the method runs it. What stands between `later` and what comes after it?",
        "A forward hook on `later` may return another output. Use its handle in a `with` block, and call the method "
        "inside it.",
        "`with later.register_forward_hook(lambda module, args, output: output * keep):` and, in it, "
        "`heat = method(model).relu()`. Then compare two sums, if the whole one is above 0.",
    ],
)
def share_on_the_cut(method, model, later, keep, dead):
    """Return which share of the positive part of `method(model)` lies on the
    places `dead`, as a float, while a part of the network is cut off.

    `method(model)` runs the model and returns a map (h, w) with a sign. While it
    does, the output of the module `later` is multiplied by `keep`, which has zeros
    and ones. `dead`, (h, w) bool, marks the places of the map that can then reach
    no logit. A map without a value above 0 has the share 0.0. No hook is left, even
    if the method raises an error.
    """
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model).relu()
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.cases
def _(rng):
    def test(image: Tensor, kind: str, layer: int, words: str) -> Case:
        keep = torch.ones(2, 4)
        keep[0, rng.integer(1, 2) :] = keep[1, 3:] = 0
        net, method = positive_net(rng), Asked(image, rng.integer(0, 2), kind)
        given = {"method": method, "model": net, "later": net[layer], "keep": keep, "dead": keep == 0}
        return Case(given, shown=f"{words}, a network, its layer {layer}, keep = {keep.int().tolist()}")

    signs = torch.tensor([[1.0, 1, 1, -1], [1, 1, -1, 1]])
    yield test(rng.whole(1, 2, 2, 4), "mean", 2, "a method with the mean gradient")
    yield test(rng.whole(1, 2, 2, 4), "each place", 2, "a method with the gradient at each place")
    yield test(rng.whole(1, 2, 2, 4) * signs, "both", 0, "a method that runs twice, with a map of both signs")
    yield test(rng.whole(1, 2, 2, 4), "both", 2, "a method that runs twice")
    yield test(-rng.whole(1, 2, 2, 4), "mean", 2, "a method whose map is negative everywhere")
    yield test(rng.whole(1, 3, 2, 4), "mean", 2, "a method whose picture has a channel too many: it raises an error")
    yield test(rng.whole(1, 2, 2, 4) / 2**30, "both", 2, "a method with a faint map")
    yield test(rng.whole(1, 2, 2, 4), "both", 1, "a method that runs twice; layer 1 is a ReLU")
    net, keep = positive_net(rng), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    net[2] = nn.Conv2d(2, 2, (1, 2), stride=2, bias=False).requires_grad_(False)
    net[2].weight.copy_(rng.whole(2, 2, 1, 2) / 4)
    method, dead = Asked(rng.whole(1, 2, 4, 4), 0, "both"), torch.zeros(4, 4, dtype=torch.bool)
    dead[1::2] = dead[0, 2:] = True
    given = {"method": method, "model": net, "later": net[2], "keep": keep, "dead": dead}
    yield Case(given, shown="a method that runs twice, and a layer whose output is smaller than its input")


@share_on_the_cut.accept
def _(method, model, later, keep, dead):
    def cut(module, args, output):
        return output * keep

    handle = later.register_forward_hook(cut)
    try:
        heat = method(model).clamp(min=0)
    finally:
        handle.remove()
    whole = heat.sum().item()
    return (heat * dead).sum().item() / whole if whole else 0.0


@share_on_the_cut.accept
def _(method, model, later, keep, dead):
    def cut(module, args, output):
        return torch.einsum("nchw,hw->nchw", output, keep)

    with later.register_forward_hook(cut):
        heat = method(model).relu()
    return torch.nan_to_num(heat[dead].sum() / heat.sum()).item()


share_on_the_cut.equivalent(
    "The method asks about one picture.", "of an argument the first only: + output = output[:1]"
)
share_on_the_cut.equivalent(
    "True and False count as 1 and 0 in a product anyway.", "spoil an argument: + dead = dead.double()"
)


@share_on_the_cut.mistake(
    "Your network is not cut. A hook changes the output only by what it *returns*: `return output * keep`."
)
def _(method, model, later, keep, dead):
    def cut(module, args, output):
        output * keep

    with later.register_forward_hook(cut):
        heat = method(model).relu()
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.mistake(
    "You cut the *map*, so no method can fail the test. Cut the network with a hook, and leave the map as it is."
)
def _(method, model, later, keep, dead):
    heat = method(model).relu() * keep
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.mistake(
    "Only the *positive part* counts: the negative values of the map are in your sums. Put a ReLU before them."
)
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model)
    return (heat[dead].sum() / heat.sum()).item() if heat.relu().any() else 0.0


@share_on_the_cut.mistake("This is the share on the places that live. The test asks for the share on `dead`.")
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model).relu()
    return (heat[~dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.mistake(
    "You divide by the number of places. A share is what lies on `dead`, divided by the sum of the whole positive part."
)
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        return method(model).relu()[dead].mean().item()


@share_on_the_cut.mistake("Where no value is above 0, you divide 0 by 0. Return 0.0 for such a map.")
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model).relu()
    return (heat[dead].sum() / heat.sum()).item()


@share_on_the_cut.mistake("You take absolute values. Only the positive part of the map counts: a ReLU.")
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model).abs()
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.mistake(
    "The share of a faint map comes out too small, because you add a number to what you divide by. Return 0.0 where no "
    "value is above 0, and divide by the sum as it is."
)
def _(method, model, later, keep, dead):
    with later.register_forward_hook(lambda module, args, output: output * keep):
        heat = method(model).relu()
    return (heat[dead].sum() / (heat.sum() + 1e-8)).item()


@share_on_the_cut.mistake(
    "Your hook writes into the output, and backward needs it as it was. Return a new tensor: `output * keep`."
)
def _(method, model, later, keep, dead):
    def cut(module, args, output):
        output *= keep

    with later.register_forward_hook(cut):
        heat = method(model).relu()
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@share_on_the_cut.mistake("You cut what goes into `later`. Multiply what comes out of it: that has the size of `keep`.")
def _(method, model, later, keep, dead):
    with later.register_forward_pre_hook(lambda module, args: (args[0] * keep,)):
        heat = method(model).relu()
    return (heat[dead].sum() / heat.sum()).item() if heat.any() else 0.0


@exercise(
    lesson=10,
    points=2,
    hints=[
        "How long is a vector's component along a direction of length 1? It is one number at each place.",
        "With `unit = direction / direction.norm()`, the component's length is the sum of `output * unit` over the "
        "channels. Give `unit` the shape (C, 1, 1) first.",
        "The hook returns `output - (output * unit).sum(1, keepdim=True) * unit`.",
    ],
)
def logits_without(model, layer, direction, images):
    """Return the logits of `model(images)` while the module `layer` hands on its
    maps (N, C, h, w) without what they have along `direction`, (C,).

    At every place, the maps are a vector of C numbers. Take from it its component
    along the direction, so that what is left is at right angles to it. The
    direction may have any length above 0. No hook is left, even if the model
    raises an error.
    """
    unit = (direction / direction.norm())[:, None, None]

    def take_away(module, args, output):
        return output - (output * unit).sum(1, keepdim=True) * unit

    with layer.register_forward_hook(take_away):
        return model(images)


@logits_without.cases
def _(rng):
    for count, layer, direction in ((1, 0, [3.0, 4.0]), (2, 2, [-8.0, 6.0]), (3, 0, [1.0, 0.0])):
        net = positive_net(rng)
        given = {"model": net, "layer": net[layer], "direction": torch.tensor(direction)}
        images = rng.mixed(count, 2, 2, 3)
        shown = f"a network, its layer {layer}, the direction {direction}, and {count} picture{'s' * (count > 1)}"
        yield Case({**given, "images": images}, shown=shown)
    for shown in ("a network that runs its layer 0 twice", "a network whose last layer raises an error"):
        net = positive_net(rng)
        given = {"model": net, "layer": net[0], "direction": torch.tensor([3.0, 4.0]), "images": rng.mixed(2, 2, 2, 3)}
        if "twice" in shown:
            net[2] = net[0]
        else:
            net[5] = nn.Linear(3, 2)
        yield Case(given, shown=f"{shown}, the direction [3.0, 4.0], and 2 pictures")
    net = nn.Sequential(nn.Identity(), positive_net(rng))
    given = {"model": net, "layer": net[0], "direction": torch.tensor([3.0, 4.0]), "images": rng.mixed(2, 2, 2, 3)}
    yield Case(given, shown="a layer that hands its very input on, the direction [3.0, 4.0], and 2 pictures")


@logits_without.accept
def _(model, layer, direction, images):
    keep = torch.eye(len(direction)) - torch.outer(direction, direction) / direction.square().sum()
    handle = layer.register_forward_hook(lambda module, args, output: torch.einsum("cd,ndhw->nchw", keep, output))
    try:
        return model(images)
    finally:
        handle.remove()


@logits_without.accept
def _(model, layer, direction, images):
    def take_away(module, args, output):
        share = torch.einsum("nchw,c->nhw", output, direction) / (direction @ direction)
        return output - torch.einsum("nhw,c->nchw", share, direction)

    with layer.register_forward_hook(take_away):
        return model(images)


@logits_without.mistake(
    "The direction may have any length: divide it by its own, `direction / direction.norm()`, before you use it."
)
def _(model, layer, direction, images):
    unit = direction[:, None, None]
    with layer.register_forward_hook(lambda _, __, output: output - (output * unit).sum(1, keepdim=True) * unit):
        return model(images)


@logits_without.mistake("Your layer hands on only what lies *along* the direction. Take that away from the output.")
def _(model, layer, direction, images):
    unit = (direction / direction.norm())[:, None, None]
    with layer.register_forward_hook(lambda _, __, output: (output * unit).sum(1, keepdim=True) * unit):
        return model(images)


@logits_without.mistake("Nothing is taken away: a hook changes the output only by what it returns.")
def _(model, layer, direction, images):
    return model(images)


@logits_without.mistake(
    "You took the same amount from every channel. The component points along the direction: multiply by `unit` again."
)
def _(model, layer, direction, images):
    unit = (direction / direction.norm())[:, None, None]
    with layer.register_forward_hook(lambda _, __, output: output - (output * unit).sum(1, keepdim=True)):
        return model(images)


@logits_without.mistake(
    "You took the *mean* over all places away. Each place has a component of its own: sum over the channels alone."
)
def _(model, layer, direction, images):
    unit = (direction / direction.norm())[:, None, None]

    def take_away(module, args, output):
        along = (output * unit).sum(1, keepdim=True).mean((2, 3), keepdim=True)
        return output - along * unit

    with layer.register_forward_hook(take_away):
        return model(images)


@logits_without.mistake(
    "You set one channel to 0. A direction is a mixture of channels; only [1, 0, …] is a single one."
)
def _(model, layer, direction, images):
    def take_away(module, args, output):
        output = output.clone()
        output[:, direction.abs().argmax()] = 0
        return output

    with layer.register_forward_hook(take_away):
        return model(images)


@logits_without.mistake(
    "You divided by the direction's length once. It takes part twice, in the component and in what you take away: "
    "divide it by its own length first."
)
def _(model, layer, direction, images):
    def take_away(module, args, output):
        along = torch.einsum("nchw,c->nhw", output, direction) / direction.norm()
        return output - along[:, None] * direction[:, None, None]

    with layer.register_forward_hook(take_away):
        return model(images)


@logits_without.mistake("You take the component away where it is above 0. A negative one is to go, too.")
def _(model, layer, direction, images):
    unit = (direction / direction.norm())[:, None, None]
    with layer.register_forward_hook(lambda _, __, output: output - (output * unit).sum(1, True).relu() * unit):
        return model(images)


@logits_without.mistake("Your hook writes into the output, which may be the layer's very input. Return a new tensor.")
def _(model, layer, direction, images):
    unit = (direction / direction.norm())[:, None, None]

    def take_away(module, args, output):
        output -= (output * unit).sum(1, keepdim=True) * unit

    with layer.register_forward_hook(take_away):
        return model(images)

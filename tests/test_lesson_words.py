"""What a lesson says about numbers is what its committed notebook shows."""

import re
from functools import cache

import pytest
from lesson_pages import LessonPage

page = cache(LessonPage)
# Of a lesson: a place in its outputs, with groups, and what it says about them, in its text or once somebody commits.
CLAIMS = {
    "05_feature_maps": [
        (r"convolutions: (\d+) keys: (\d+)", "The dict has {1} keys, because the {0} weights have"),
        (r"the 20th: (\d+)", "The span of the 20th channel is about {0}."),
        (r"features\.2 56 x 56 (\d+)% \d+% (\d+)%", "has {0} % on the thing and tells the kinds apart in {1} %"),
        (r"features\.13 14 x 14 (\d+)% \d+% (\d+)%", "has {0} % and {1} %, and the untrained network"),
        (r"features\.13 14 x 14 \d+% (\d+)% \d+% (\d+)%", "and the untrained network {0} % and {1} %"),
        (r"features\.16 14 x 14 (\d+)%", "but only {0} % lie on the thing"),
    ],
    "06_guided_backprop": [
        (r"gradient 0\.\d+ (\S+)", "The **cosine** of the two gradients is {0}"),
        (r"gradient (0\.\d+) .*? deconvnet (\S+)", "asked for, the gradient {0}, and the deconvnet {1}."),
        (r"guided (0\.\d+)", "The guided rule puts {0} on the thing that was asked for"),
        (r"guided 0\.\d+ (\S+) (\S+)", "The guided maps have {0},"),
        (r"guided 0\.\d+ \S+ (\S+)", "**rank correlation** is the highest, {0}"),
        (r"guided (1\.0) 1\.0 1\.0", "The cosine is {0} for all three photographs."),
        (r"blocks\.6\.0 \(320, 7, 7\) cosine (\S+)", "the two maps have a cosine of {0}."),
        (r"blocks\.5\.1 \(192, 7, 7\) cosine (\S+)", "at `blocks.5.1` it is {0} already"),
        (r"classifier \S+ \S+ (\S+)", "still correlates at {0} with the original one"),
        (r"classifier (\S+) \S+ \S+ (\S+)", "By absolute value the gradient keeps {0} and Grad-CAM {1}."),
        (r"classifier, by sign (\S+) \S+ \S+ \1", "both keep {0}."),
        (r"features\.8 \S+ \S+ (\S+)", "and at {0} when four layers of six are random"),
    ],
    "07_cam_and_grad_cam": [
        (r"mean on the other thing is negative: (\d+)", "In {0} of 80 maps the *other* thing speaks against the class"),
        (r"lowest value of all on the other thing: (\d+)", "and in {0} the strongest objection of all is there"),
        (r"the same by chance: (\d+)", "is there, which chance would bring about in {0}."),
        (r"features\.16: 80 maps: on the thing (\d+)%", "hits the thing in {0}% of the maps, where chance hits 10%"),
        (r"features\.16: 80 maps: .*? energy inside (\d+)%", "only {0}% of its heat is on the thing"),
        (r"middle of the picture: 80 maps: on the thing (\d+)%", "always points at the middle reaches {0}%"),
        (r"features\.2 \d+% \d+% \d+% (\d+)%", "the hottest pixel is on the wrong thing in {0}% and"),
        (r"features\.6 \d+% \d+% \d+% (\d+)%", "the wrong thing in 22% and {0}% of the maps"),
        (r"Guided Backprop \d+% (\d+)%", "it has {0}% of its energy on the thing that was asked for"),
        (r"Guided Backprop \d+% \d+% (\d+)%", "it leaves {0}% on the *other* thing, and chance leaves 10%."),
        (r"the product \d+% \d+% (\d+)%", "The product leaves {0}%."),
        (r"absent: (\d+) of 40 maps reach 1", "Of the maps of classes that are *not* there, {0} of 40 reach 1"),
        (r"maps hottest at: {'fish': 40.*?'buoy': (40)}", "In all {0} pictures the second network's hottest"),
        (r"fish, no buoy (\d+) 0 buoy", "the second network finds none of the {0} fish."),
        (r"buoy, no fish 0 (\d+) neither 0 0", "it sees a fish in {0} pictures, with neither in none."),
        (r"fish and buoy (\d+) 40 fish, no buoy (\d+)", "does not care: {0} and {1} fish, and no false alarm."),
        (r"why A\? 12 maps: (\d+)%", "the plain logit {0}%"),
        (r"why A rather than B\? 12 maps: (\d+)%", "The difference of logits has {0}% of its heat in the correct half"),
        (r"log-softmax of A 12 maps: (\d+)%", "the log-softmax {0}%"),
        (r"bobsled (\d+)%; .*? helmet \d+% \d+% (\d+)%", "The answer falls from {0}% to {1}%."),
        (r"nine squares .*?, (\d+)% in the median", "Grey squares all over the picture leave {0}% in the median."),
    ],
    "08_hooks_in_practice": [
        (r"the twin sees a fish in (\d+) of 40 with the buoy", "With the buoy in the picture it sees one in {0}."),
        (r"features\.2 (\d)% of the map: (\d+) fish", "{0}% of the map are enough for {1} fish out of nothing"),
        (r"buoy taken out at features\.6: a fish in (0) of the", "taken out, it leaves no fish"),
    ],
    "10_where_next": [
        (r"'buoy': (1\d), 'stamp': (1\d)", "In {0} pictures its map is hottest at one of them, in {1} at the other"),
        (r"f\(A_p\) \d+ (\d+)", "have {0}% of their positive part in the correct half"),
        (r"f\(A_p\) - f\(0\) \d+ (\d+)", "and {0}% are left"),
        (r"HiResCAM (?:\d+ ){5}(\d+)", "HiResCAM and SmoothGrad have {0}%"),
        (r"SmoothGrad on maps (?:\d+ ){5}(\d+)", "and {0}%: a gradient knows nothing of constants"),
        (r"Integrated Gradients \d+ (\d+) (?:\d+ ){6}", "Integrated Gradients comes first with {0}%"),
        (r"Grad-CAM \d+ (\d+) (?:\d+ ){6}", "and Grad-CAM last with {0}%"),
        (r"random weights (\d+)", "The background is read from {0}% of the new pictures with random weights"),
        (r"trained weights (\d+)", "and from {0}% with trained ones"),
        (r"\(commonest answer\) (\d+)", "alone would be right in {0}%"),
        (r"trained weights \d+ \(.*?\) (\d+)", "from {0}% of the new pictures, because this layer knows the things"),
        (r"random weights \d+ \(.*?\) (\d+) .*? answer\) \d+ \1", "it reads {0}%, as many as the commonest number has"),
        (r"random weights \d+ \(.*?\) \d+ \(.*?\) (\d+)", "So the selectivity is {0} points with random weights"),
        (r"trained weights \d+ \(.*?\) \d+ \(.*?\) (\S+) \(-", "With trained ones it is {0}, and its interval"),
        (r"random 2 best channel: (\S+) where", "It is {0} to"),
        (r"random 1 best channel: (\S+) where", "to {0} in these three"),
        (
            r"trained best channel: (\S+) where it was chosen, \1 on",
            "The trained network's best channel has {0} on both.",
        ),
    ],
}


@pytest.mark.parametrize(
    ("lesson", "shown", "said"), [(lesson, *claim) for lesson, claims in CLAIMS.items() for claim in claims]
)
def test_what_is_said_of_a_number_is_shown(lesson, shown, said):
    found = re.search(shown, page(lesson).in_one_line)
    assert found, "the outputs have no such place"
    assert said.format(*found.groups()) in page(lesson).said

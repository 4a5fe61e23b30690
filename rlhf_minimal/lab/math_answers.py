r"""Whether two answers are mathematically the same, as 1/2, 0.5 and ``\frac{1}{2}`` are: `math:`. Needs math-verify.

The formula of a completion is found here, and written as LaTeX that can be read in one way only. What is unclear is no
answer: "2 of 5", "41 to 42", "10:30", ``3i``. Nor is a number that its sentence denies, calls a guess or an example,
bounds, or uses as an operand: the words that do so stand in one pattern (`_IS_DENIED`). The formula is then compared in
a process of its own (`math_worker`), since math-verify's own time limit works in the main thread only. math-verify
parses with latex2sympy and computes with sympy, so a model's text reaches both, in that process alone: it has limits on
memory and time, is killed where it does not answer, and evaluates no text as Python.
"""

import atexit
import importlib.util
import json
import re
import selectors
import subprocess
import sys
import threading
import unicodedata
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from rlhf_minimal.lab.final_answer import final_answer
from rlhf_minimal.lab.jsonl import rows_task
from rlhf_minimal.tasks.base import Problem, Task

SECONDS = 30.0  # to wait for one comparison, which gives up itself after two seconds of computing
STARTING = 60.0  # for its first one: importing sympy takes a second, and much longer on a busy machine
LONGEST = 500  # largest number of characters in a formula
FORMULAS = 50  # how many formulas of a completion are tried, beginning with the last

_CLOSE = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_OPEN = re.compile(r"\$\$|\$|\\\(|\\\[")
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00d7\u00b7\u22c5\u2217", r"\cdot "),
        **dict.fromkeys("\u00f7\u2044\u2215", "/"),
        **{"\u066b": ".", "\u066c": ",", "\u3002": ". ", "\u3010": " ", "\u3011": " "},
        **dict.fromkeys("\u00a0\u2009\u202f\u2007", "~"),
        **dict.fromkeys("\u20ac\u00a3\u00a5\u20b9\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", ""),
        **{"\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2248": r"\approx ", "\u00b1": r"\pm "},
        **dict.fromkeys("\u00b0\u00ba", r"^\circ "),
    }
)
_POWERS = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+")
_VULGAR = re.compile("(?<!\\d)(\\d*)\\s?([\u00bc-\u00be\u2150-\u215e])")
_ROOT = re.compile("([\u221a\u221b\u221c])\\s*(\\d+(?:\\.\\d+)?|\\([^()]*\\)|[A-Za-z](?![A-Za-z]))")
_DEGREE = {"\u221a": "", "\u221b": "[3]", "\u221c": "[4]"}
_SCIENTIFIC = re.compile(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?![\w])")
_GROUPED = re.compile(r"(?<![\d.,/^_])[1-9]\d{0,2}(\\[,;:! ]|\{,\}|[~ '_])\d{3}(?:\1\d{3})*(?![\d/])")
_REPEATED = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s?\{(\d{1,9})\}")
_MIXED = re.compile(r"(-?)\s*(\d+)\s*(?:\s(\d+)/(\d+)|\\[dtc]?frac\s?\{(\d+)\}\s?\{(\d+)\})")
_DRESSED = re.compile(r"\\(?:text|textbf|textit|mathbf|mathrm|mbox|bf)\s?\{\s*\(?([^{}()]*)\)?\s*\}")
_OTHER_DRESS = {
    re.compile(r"\\lbrace(?![A-Za-z])"): r"\\{",
    re.compile(r"\\rbrace(?![A-Za-z])"): r"\\}",
    re.compile(r"\\text\s?\{\\?\$\}|\\(?:begin|end)\s?\{(?:align|gather|equation|split|center)(?:ed)?\*?\}"): "",
}
# What takes an answer back that stands before it: in words, or by another number in its place.
_RETRACTED = re.compile(
    r"(?i)\b(?:that|this)(?:'s| is| was) (?:wrong|incorrect|not (?:right|correct|true))|(?:^|[.!?] )(?:no|false|wrong"
    r"|incorrect|just kidding)[.!,]|\b(?:no,? wait|hold on|scratch that|on second thought)\b"
    r"|\bI made an? (?:\w+ )?(?:mistake|error)(?! in\b)|\bbut\b[^.]*\bcontradicts?\b.*\bno solution|\bI (?:do not|don't"
    r"|cannot|can't) (?:know|solve|answer|tell)\b"
)
_INSTEAD = re.compile(
    r"(?i)(?:\b(?:it|that|this) should (?:be|have been)|\b(?:actually|oops|wait|no|correction|hmm)\b[^.!?\n]{0,40}?"
    r"\b(?:it's|it is|answer is)|\banswer (?:is|should be))[\s$:*]*(?:\\boxed\{)?"
    r"(-?\d[\d,]*(?:\.\d+)?(?![\d ]*[-+*/=^])|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b)"
)
# words that make another number of the one before them, and no unit
_HALF = "half|halves|(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s?"
_BIG = r"(?:hundred|thousand|dozen|ten|pair)s?|[mbtr]+ill?i?on\w*|mil|ml?n|[bt]n|lakh|crore|Mio|Mrd|Tsd|score|gross"
_MAKES = rf"{_HALF}|{_BIG}|squared|cubed|halved|doubled|tripled|factorial"
# units that a formula may be glued to, as in 5cm (5m may be a product), and those that need a space
_UNITS = "[mcdk]m|[km]g|[mcd][lL]|kWh?|[kM]?Hz|mph|km/h|ft|in|yd|mi|lbs?|oz|hrs?|mins?|secs?|USD|EUR|GBP"
_GAP = r"(?:\s|~|\\[,;:! ])"
_AREA = re.compile(rf"((?:[\d}}]|\\pi){_GAP}+(?:[a-z]+/)?(?:{_UNITS}|units?|[ms]))\s*\^\s*(?:[23]|\{{[23]\}})(?!\d)")
_UNIT = re.compile(
    rf"(?<=[\d}}])(?:{_GAP}*\\(?:text|mathrm|mbox)\s?\{{(?!.*(?:!|\b(?:is|not?|or|and|wrong|false|incorrect|approx\w*|[kKM]"
    rf"|{_MAKES})\b))(?:[^{{}}\d]|\^[23])*\}}(?:\s*\^\s*\{{?[23]\}}?)?|{_GAP}+(?:{_UNITS}|[mgshlLNJWVKCFA])(?:/(?:{_UNITS}|[mshl]))?)\s*$"
)
# two numbers side by side are neither one number nor a product; \sqrt16 may be 4, and is 6 in LaTeX
_SPACE = rf"(?:{_GAP}|\\q?quad)"
_BESIDE = re.compile(rf"\d{_SPACE}+\d|(?<!frac)(?<!frac )\d{_SPACE}*\{{\s*\d|\d\s*:\s*\d|[<>]\s*$|\\sqrt\s*\d\d")
_CHECK = re.compile(
    r"(?is)\banswer\b.*?(\n[^\w\n]*(?:(?:\w+ )?check|verification|(?:let's )?verify)\b(?!.*\banswer\b).*)"
)
# no cross is among them
_APPLAUSE = re.compile("[\u220e\u25a0-\u25ff\u2600-\u2714\u2719-\u274b\u274d-\u27bf\ufe0f\U0001f300-\U0001faff]")
_DEGREES = re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})")
# Layout that is not LaTeX's, and what it means: HTML, quotes, formulas as programs write them, money
_QUOTE = "[\"'\u2018-\u201e\u00ab\u00bb]"
_MARKUP = {
    re.compile(r"<!--[^<>]*-->|</?(?:b|i|u|em|strong|span|code|mark|font)(?: [^<>]*)?>"): "",
    re.compile(r"</?(?:del|strike)>"): "~~",
    re.compile(r"<sup>([^<>]*)</sup>"): r"^{\1}",
    re.compile(r"<sub>([^<>]*)</sub>"): r"_{\1}",
    re.compile(r"</?(?:p|div|td|tr|li|h\d|br|final|result)(?: [^<>]*)?/?>"): "\n",
    re.compile(rf"(?<![\w)}}\]]){_QUOTE}(?! )([^\"'\u201c\u201d\n]{{1,99}}){_QUOTE}(?!\w)"): r"\1",
    re.compile(r"(?<=[\u3000-\u9fff\uac00-\ud7af])(?=[-\d$\\])|(?<=[\u3000-\u9fff]:)|(?<=\d)(?=[\u4e2a\u5143])"): " ",
    re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])"): r"\\pi ",
    re.compile(r"(?<![\\A-Za-z])sqrt\s?\(([^()]*)\)"): r"\\sqrt{\1}",
    re.compile(r"(?<=\^\\circ)\s+[CF](?![A-Za-z])"): "",
    re.compile(r"\b(?:USD|EUR|GBP|INR|Rs\.?)\s?(?=\d)|\b(?:US|HK|AU|CA|NZ|SG)(?=\\?\$\s?\d)"): "",
}
_DOTTED = re.compile(r"(?<![\d.,({\[])\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d+)?|(?:\.\d{3})+,\d\d?)(?![\d.])")  # 1.234,56
_LETTERS = re.compile(rf"\d\s*(?!(?:{_UNITS}|of|per|is)\b)[A-Za-z]{{1,3}}\b")  # behind a number: rather a product
_TOKEN = r"(?:[\d.,+\-*/^()!%={}:_';<>|\[\]&]|\\[A-Za-z]+|\\[,;:! %$]|~)"  # what a formula in a sentence is made of
_WORDS_IN_LATEX = re.compile(r"\\(?:text\w*|mathrm|mbox)\s?\{([^{}]*)\}")
_JSON = re.compile(r'(?i)"(?:final[_ ]?)?answer"\s*:\s*(?:"((?:[^"\\\n]|\\.)*)"|(-?\d[\d.eE+-]*))?')
# what joins values, and a value: neither gives back what it has taken, or a search would take exponential time (atomic
# groups, not `++`: where its part fails midway, Python 3.11.2 stays there, and 3.11.7 does not)
_JOIN = r"(?>\s*(?:,?\s*\b(?:or|and)\b|[,;]|\\(?:lor|vee)\b)(?:\s|\\[ ,;]|\\q?quad)*)"
_VALUE = r"(?=[^\s,;]*(?:\d|\\pi))(?>(?:[\d./^*+{}()-]|\\(?:[dt]?frac|sqrt|pi|cdot)\s?)+)"
_SEVERAL = re.compile(
    rf"(?:^|(?<=[\s:(]))(?:([A-Za-z])[\w{{}}]* *= *)?{_VALUE}(?:{_JOIN}(?:\1[\w{{}}]* *= *)?{_VALUE})+$"
)
_RUN = re.compile(rf"(?<!\S){_TOKEN}*\d{_TOKEN}*(?:[ \t]+{_TOKEN}+)*(?!\S)|(?<!\S){_TOKEN}+(?:[ \t]+{_TOKEN}+)*(?!\S)")
# What a sentence may not say of its answer, which stands between \0 and \1 (`_is_denied`).
_CLAUSE = re.compile(
    r"(?i)(?<!\be\.g|\bi\.e|\bneg|\bmax|\bmin)[.?!;](?=[\s$]|\Z)|\n(?=[^\n]*[A-Za-z]{3})|, *but\b"
    r"|\b(?:so(?! far)|thus|hence|therefore|then|not [^.,;A-Za-z]{1,40} but|but(?= +[a-z]))\b"
)
_NAME_IS = r"(?<![\w\\])\\?([A-Za-z])[\w']*(?:\([a-z]\))? *="  # as x_1 = or f(x) =
_AND = r"(?:,? *\b(?:and|or)\b|[,;])"
_NO = r"(?:\b(?:no[nrt]|cannot|never|neither|nobody|nicht|kein|pas|n\u00e3o|\u043d\u0435|no (?:es|means)|\w+n't)\b)"
_IS_DENIED = re.compile(
    # a word directly before it that makes it an operand, a bound, a part, a possibility or the number of a step
    r"(?is)\b(?:no|or|than|about|nearly|almost|roughly|around|least|most|minus:?|neg\.?|max\.?|min\.?|negative|plus"
    r"|times|over|by|from|and|between|either|both|power|(?:to|of) the|(?:square |cube |\A)root|sqrt|ln|log[\w{}]*|sin"
    r"|cos|tan|exp|abs|floor|ceil|round|factorial|base|under|below|above|beyond|before|without|except|excluding|unlike"
    r"|near|until|past|preceding|following|exceed\w*|(?<!can )add|subtract|multiply|half|twice|thrice|double|triple|mod"
    r"|but|choose|say|suppose|assum\w+|try(?:ing)?|test|if|such as|(?:might|may|could|used to) be|approach\w*"
    r"|(?<!looks )like|question|problem|step|case|chapter|equation|page|figure|table|section|part|\d+ (?:in|per)|oder"
    r"|und|ou|et|bis|me?[no]+i?s de|mindestens|etwa|environ|circa|hardly|up to(?<!adds up to)(?<!add up to))[\s$]*\0"
    r"|(?:[\u6216\u548c\u5230\u7ea6]|[\u4e0d\u975e\u6ca1\u6c92]\u662f?|\d\s*[eE]|~~)[\s$]*\0|\d\s*(?:h|h(?:ou)?rs?"
    r"|min(?:ute)?s?|f(?:ee|oo)?t|yards?|pounds?|lbs?|(?:dollar|week|day|year)s?|[mcdk]?m|k?g"
    r"|[cm]?l)(?:\s+and)?[\s$]*\0|\b(?:after|within)[\s$]*\0(?![^\x01]*\x01\W*(?:second|minute|hour|day|week|month"
    r"|year))"
    rf"|(?:\b(?:close|next|prior|add\w*|raised|proportional|opposed|{_HALF})|\d|[\d)}}]\$) *to[\s$]*\0"
    # of: a total of 5, and no third of 5
    rf"|\A(?!.*\b(?:an? (?:(?!(?:{_HALF}|multiple|divisor|factor|power|root|square|cube|fraction|part)\b)\w+ ){{1,3}}"
    r"|(?:answer|result|total) )of[\s$]*\0).*\bof[\s$]*\0"
    # a denial without a verb between, or of a whole sentence; an assumption
    rf"|{_NO}(?:\s+(?!(?:is|are|was|were|equals|gives?|leaves?|makes?|remains?)\b)[\w']+){{0,4}}[\s$:]*\0"
    rf"|{_NO}\s+(?:\w+ )?(?:think|believe|true|the case|sure|certain|say|claim|likely|mean|imply)\b[^,]*\0"
    r"|\b(?:false|untrue|wrong|doubt\w*|impossible|unlikely|suppos\w+|assum\w+|pretend\w*|imagine|if) (?:\w+ ){0,2}"
    r"(?:that|whether|it|the answer)\b[^,]*\0|(?:\b(?:assum\w+|suppose|let|try)|\A\W*(?:if|when))\b[^,=]*=[\s$]*\0"
    # what somebody else says
    r"|\b(?:thinks|insists|thought(?! of)|believe[sd]|claim(?:s|ed)|argue[sd]|sa(?:ys|id)|according to (?:him|her|them"
    r"|my|the (?:text)?(?:book|key|author))|(?:some|many|others)(?: \w+)? (?:answer|believe|claim|get|say|think|write)"
    r"|(?:book|key|solution|classmate|friend)(?:'s \w+)? (?:gives|gave|writes|wrote))\b[^,\d]*\0"
    # a guess, an example, a bound, a mistake, a part of the way
    r"|\b(?:guess|I guess\w+|conjectur\w*|(?:at first|initially|originally|previously),? I|I (?:initially|originally"
    r"|wrongly|mistakenly)|for (?:example|instance)|e\.g|let's (?:say|try)|would have been|examples? (?:is|are|would)"
    r"|(?:might|may|would|could) (?:\w+ )?(?:assume|think|say|guess|answer|believe)|tempt(?:ed|ing)|presumably|ballpark"
    r"|maybe|perhaps|possibly|probably|running total|if (?:\w+ )?(?:ignored|forg[eo]t)|(?<!made )(?:my|an?"
    r"|rough) (?:\w+ )?(?:estimate|mistake)|(?<!least )upper (?:bound|limit)|(?<!greatest )lower (?:bound|limit)"
    r"|bounded|(?:wrong|incorrect|false|rejected|mistaken|naive)(?::| (?:answer|approach|result|solution|value|idea))"
    r"|(?:first|initial|previous|earlier|old) (?:answer|attempt|idea|thought|try))(?![a-z]).*\0"
    # one of several values of one name, or of several numbers
    rf"|{_NAME_IS}[^=\0]*{_AND}[\s$(]*(?:\0\\?\1[\w'()]* *=|\\?\1[\w'()]* *=[\s$]*\0)"
    rf"|{_NAME_IS}[^=]*\x01[ $)]*{_AND}[ $]*\\?\2[\w'()]* *="
    r"|[\d)\]!%A-Za-z][ $]*[,;/]?[ $]*\bor\b[\s$(]*(?:\0\\?[A-Za-z][\w']* *=|\\?[A-Za-z][\w']* *=[\s$]*\0)"
    r"|([-\d.]*[\d)\]!%]|(?<![^\W\d_])[A-Za-z])[ $]*(?:[,;/]?[ $]*\b(?:or|and)\b|[,;])[\s$([]*\0(?!\3\x01|[^\x01]*=)"
    # behind it: another number is made of it or named, ...
    rf"|\x01[\s$)\]\"]*(?:\?|~~|[,;]? *(?:{_MAKES}|plus|minus|over|divided|mod|choose|sqrt|sin|cos|tan|log|ln|exp"
    rf"|times(?! *(?:[.,;$)]|in|to|per)|\W*\Z)|per ?cent of|of \$?\d+|to \d|to the (?!nearest)|to be \w+ed|and (?:\d"
    rf"|(?:an?|one|two|three) (?:bit|{_HALF}))|(?:less|more|fewer|greater) than (?=that|this|it|half|twice|[\d$\\])"
    rf"|(?:degrees? )?below|per \d|in (?:\d|binary|octal|hex|base (?!ten\b|10\b)))\b| *and\b(?:[^.]*\d| (?:up|above"
    rf"|more))|(?:[,;/]| +:)[ $]*(?:\\[dt]?frac|\\sqrt)? *[-+(]?\d|[,;(]? *(?:or|maybe|perhaps|possibly|probably|unless"
    rf"|give or take|(?:for|as an) (?:example|instance)|I guess)\b|[\s,(]*(?:[a-z]+ )?(?:or (?:more|less|fewer|so)"
    rf"|at (?:the )?(?:very )?(?:most|least))\b"
    # ... or the next sentence goes on, or this one restricts it
    r"|[\s$]*[.!]?\s+(?:now|next),? (?:we|let)\b|(?-i:(?![\s$]*[A-Z]))[^.!?\n]*\b(?:but|yet|however|(?:al)?though)\b"
    # ... or it is denied, or called a guess
    r"|[\s,:(\u2014-]*(?>(?:(?:which|that|this|it|and) )*)(?>(?:(?:is|was|were|seems?|would|could|can|does|did|must"
    r"|might|may|have|be|been|\w+ly|just|only|my|an?|the|also|one|still|first|upper|lower|good|rough"
    r"|common) )*)(?:(?:not|never|cannot)\b(?! *[\d$\\(])|\w+n't|wrong|incorrect|false|fails?\b"
    r"|leads? to a contradiction|too \w+|ruled out|extraneous|excluded|rejected|impossible|guess|bound|estimate|example"
    r"|mistake|(?:earlier|previous|old) \w+))"
)
# Behind a number in prose: another, or the rest of its sentence draws a conclusion from it, or is not finished.
_GOES_ON = re.compile(
    r"[\d\u2070-\u209f]|\A(?![\s$]*[A-Z])[^.!?\n]*\b(?:(?:hence|thus|(?<!do )so(?! far)|then)\b|(?:by|is|of|the)\s*\Z)"
)
# What stands directly around a formula that is marked or boxed (`stands_alone`), once layout is taken away (`_flat`): a
# dollar is left between a formula and words, whether they are beside it or in a \text{} of it.
_DRESS = (
    r"text\w*|math(?:bf|rm|it|sf|tt|normal)|boldsymbol|bm|bf|emph|underline|[fmh]box|boxed|ensuremath|colorbox"
    r"|color|displaystyle|[lL]arge|LARGE|[hH]uge|centering|left|right|[bB]igg?[lrm]?"
)
_LAYOUT = {
    re.compile(r"\\\\(?:\[[^\]]*\])?|\\(?:begin|end)\s*\{(?![^}]*matrix)[^}]*\}(?:\{[lrc|]*\})?"): "$\n",
    re.compile(r"\\(?:text)?color(?:box)?\s*\{[^}]*\}|\\[hv]space\*?\s*\{[^}]*\}|</?[a-z]+>|<\|\w+\|>"): " ",
    re.compile(r"\\(?:text\w*|[mhf]box|mathrm)\s*\{([^{}]*)\}"): r"$\1$",
    re.compile(r"(?<!\\)\$+|\\[()\[\]]|\\(?:text|[mh]box)\s*\{"): "$",
    re.compile(rf"\\(?:{_DRESS})(?![A-Za-z])(?:\s*\{{)?|(?<![A-Za-z\\])\{{|(?<!\\)\}}"): "",
    re.compile(r"\\begin\s*\{\w+\}"): "(",
    re.compile(r"\\end\s*\{\w+\}"): ")",
    re.compile(r"\\[,;:! $]|(?<!~)~(?!~)|\\q?quad(?![A-Za-z])|(?<!\\)\{"): " ",
}
_TO = r"\\(?:(?:Long|long)?[rR]ightarrow|implies|iff|therefore|par|newline|noindent|hfill|approx"
_LEFT = re.compile(
    r"(?:(?<![-+*/^<>(])\n|^)(?:[ $]*(?:[-*>\u2022]|\d+[.)]|\([A-Za-z]{1,3}\))(?= +\$))?[ $]*$"
    rf"|(?:(?<![!<>])(?<!\\not)(?<!\\not )=|{_TO}|equiv|in|to|item))[ $]*$"
    r"|(?:^|[^A-Za-z\\])(?:(?:[^\W\d_]{2,}|[aAI]|(?<=')s) *\$|[A-Za-z]{4,} )$|[^\W\d_a-zA-Z][ $]*$"
    r"|(?:[^\d\s]|[^\s\d]\s|\d(?=: ?\$)):[ $]*$|[A-Za-z)]{2}! ?\$$|(?:[^\s\d]|\d(?=. ?\$))[.?,;][ $]*$"
    r"|\([^()]*[A-Za-z]{3}\) ?\$$|[&\u2014\u2026\u2192\u21d2\u2234\u2261\u2705][ $]*$"
)
_RIGHT = re.compile(
    rf"[ $]*(?:$|\n|=|{_TO}|tag|label|qed|(?:black)?square|Box|checkmark|pmod)(?![A-Za-z])|[&\u2014\u2026\u2192\u21d2])"
    r"|[ $]*(?:[.,;:?\u3002](?!\d|\.\.)|/ ?[A-Za-z]{2}|(?:[mcdk]m|[km]g|[mcd][lL])(?![A-Za-z])|[^\W\d_a-zA-Z])"
    r"| [A-Za-z]{4,}(?![\w(^])|\$[ $]*(?:- +[A-Za-z]{2}|\([^()]*[A-Za-z]{3}|[A-Za-z]{2}[A-Za-z-]*(?![\w(^])"
    r"|[mgshlLNJWVKCF](?:\^ *[23])?(?![\w(^']))"
)
_JOINED = re.compile(
    r"(?:[ ,;/&$=()]|\\?\b[A-Za-z]\w? *=|\b(?:and|also|as well as)\b)*|[^.?!\n]*\b(?:or|maybe|perhaps|if)\b[^.?!\n]*"
)
# A last sentence that names one of several options by its letter, and does nothing else.
_OPTION = re.compile(
    r"(?i)(?:^|[.!?;]\s|\n)\s*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+|right\s+|best\s+)?"
    r"(?:answer|option|choice)(?:\s+is)?\s*:?\s*(?:option\s+)?(?:\(([A-Z])\)|([A-Z]))\s*\.?\s*$"
)


def package_is_missing(task: str, package: str) -> ValueError:
    """The error of a task whose package is not installed.

    Args:
        task: The full name of the task.
        package: What pip calls the package.
    """
    return ValueError(f"the task {task} needs the package {package}: pip install {package}")


def math_task(file: str) -> Task:
    r"""A task from a file of prompts: an answer is right if it has the same mathematical value.

    In prose without a box the last number counts unless its sentence denies it, which no pattern does completely: ask
    for ``\boxed{}`` where it matters.

    Args:
        file: As for `lab.jsonl.exact_task`.

    Returns:
        The task; it needs a real model.

    Raises:
        ValueError: As from `exact_task`; if math-verify cannot read an answer, or is not installed.
    """
    check_math_verify(f"math:{file}")
    return rows_task("math", file, _verify, check_answer=_check_readable, same=same_answer)


def _verify(completion: str, problem: Problem) -> float:
    return float(same_answer(completion, problem.answer))


def _check_readable(answer: str) -> None:
    if not is_readable(answer):
        raise ValueError(
            f"math-verify cannot read the answer {answer!r} as a formula; write it as a number or in LaTeX "
            "without sums, integrals or names of operators, or use exact: instead of math:"
        )


def same_answer(completion: str, answer: str) -> bool:
    r"""Whether the last formula of a completion is the right answer.

    The formula is searched for in the completion's `final_answer`. It is the last ``\boxed{...}``. Without a box, it is
    the last formula between dollars, ``\(...\)`` or ``\[...\]`` that can be read. Without these, it is the whole text
    if that is one line without a word; the letter, if the last sentence says "the answer is (C)" and no more; otherwise
    the last number or plain expression in it.

    Of an equation, the last side counts, if every other side is a name or has the same value: x = 5 and 2 + 3 = 5 mean
    5, and 6 = 5 means nothing. Of an approximation, both sides count, if one is the other after rounding. A percent
    sign and a degree sign are read as units, on both sides: 50% is 50, and not 0.5. Other units are not compared.

    A label or a unit in the box costs nothing (``\boxed{Answer: 18 dollars}``), nor do quotes, Markdown, HTML, a JSON
    object with one key `answer`, digits of other scripts, ``1 000``, ``1'000`` and ``3 1/2``. "x = 2 or x = 3" gives
    the set of both. ``1.234`` is a decimal, ``1,5`` are two numbers, and 5m or 5x may be a product.

    Args:
        completion: What the model wrote.
        answer: The right answer, as `is_readable` reads it.

    Returns:
        True for the same text, and for formulas that math-verify finds equal: numbers agree in six decimals and in
        about six digits, expressions are simplified, and the order in sets does not matter.
    """
    text = _in_json(final_answer(completion))
    if text and text == answer.strip():
        return True
    gold = _formula_of_answer(answer)
    return any(_ask(gold, formula) for formula in _last_formula(text) if gold)


def is_readable(answer: str) -> bool:
    """Whether a right answer is a formula; it may stand in dollars, in a box, or alone."""
    formula = _formula_of_answer(answer)
    return bool(formula) and _ask(formula)


def check_math_verify(task: str) -> None:
    """Raises an error if math-verify is not installed.

    Args:
        task: The full name of the task that needs it.

    Raises:
        ValueError: If it is not installed; the message says how to install it.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise package_is_missing(task, "math-verify")


@lru_cache(maxsize=4096)
def _formula_of_answer(answer: str) -> str:
    text = plain_signs(answer)
    places = [(0, 0, in_last_box(text))] if "\\boxed" in text else marked(text)
    return latex(places[-1][2] if places else text)


def _last_formula(text: str) -> list[str]:
    """The formula that a text gives as its answer: the first of the list that can be read. Mostly it is one."""
    text = plain_signs(text)
    if "\\boxed" not in text and (check := _CHECK.search(text, max(text.lower().rfind("answer"), 0))):
        text = text[: check.start(1)]
    said = text[text.rfind("\\boxed") :] if "\\boxed" in text else re.split(r"\d", text)[-1]
    own = said[: said.find("}") + 1].replace(",", "")  # of a box
    if _RETRACTED.search(said) or any(number.replace(",", "") not in own for number in _INSTEAD.findall(said)):
        return []
    if "\\boxed" in text:
        return [_in_box(boxed(text))]
    if several := _several(text):
        return [several]
    places = marked(text)
    for start, stop, formula in reversed(places[-FORMULAS:]):
        found = latex(formula)
        if len(_words(found)) > 1:
            continue
        if re.search(r"\d", found) and not stands_alone(text, start, stop):
            return []
        if found == "" or _ask(found):
            return [found]
    if "\n" not in text.strip() and not _words(text) and len(text) <= LONGEST:
        return [latex(text.strip().removeprefix("="))]
    if option := _OPTION.search(text):
        return [option[1] or option[2]]
    for start, stop, _ in reversed(places[-2 * LONGEST :]):
        text = text[:start] + text[stop:] if "\\" in text[start:stop] else text
    return [_last_in_sentence(text)]


def _in_box(text: str) -> str:
    """The formula of a box, which may hold a label and a unit: a sentence of one number is read as a sentence."""
    plain = _AREA.sub(r"\1", re.sub(r"(?:\\[,;:! ]|~)(?=\s*[A-Za-z])", " ", _WORDS_IN_LATEX.sub(r"\1", text)))
    if several := _several(text, whole=True):
        return several
    numbers = sum(bool(re.search(r"\d|\\pi", run[0])) for run in _RUN.finditer(plain))
    return _last_in_sentence(plain) if _words(plain) and numbers == 1 and not _LETTERS.search(text) else latex(text)


def _several(text: str, *, whole: bool = False) -> str:
    """The values of one unknown, with commas between: of "x = 2 or x = 3". "" if a text does not end in such a list."""
    plain = _WORDS_IN_LATEX.sub(r" \1 ", text[-LONGEST:]).replace("$", " ").strip(" .\n")
    found = _SEVERAL.search(plain)
    if not found or (found.start() if whole else not found[1]) or _is_denied(plain[: found.start()]):
        return ""
    return ",".join(latex(re.sub(".*=", "", part)) for part in re.split(_JOIN, found[0]))


def _in_json(text: str) -> str:
    """The answer in a JSON object that ends a text; "" if it has none, or two, or one that is a list."""
    found = _JSON.findall(text)
    if len(found) == 1 and text.rstrip("` \n").endswith("}") and not _is_denied(text.partition("{")[0]):
        return found[0][0].replace("\\\\", "\\") or found[0][1]
    return "" if found else text


def stands_alone(text: str, start: int, stop: int) -> bool:
    r"""Whether what stands directly around a formula lets it be the answer.

    It is none as an operand: with a factor, a sign, a power or a factorial, within a fraction, a root or a matrix. Nor
    is it one behind an inequality, where the sentence takes it back, and where a comma, "and" or "or" joins it to
    another number. Beside it may stand a relation that says what it is (``2 + 2 = \boxed{4}``), words, a unit, a full
    stop.

    Args:
        text: A completion with plain signs (`plain_signs`).
        start: Where the formula begins: a box, or one in dollars.
        stop: Where it ends.
    """
    before, behind = re.split(r"\n\s*\n", text[:start])[-1], re.split(r"\n\s*\n", text[stop:], maxsplit=1)[0]
    spans = [text[i:start] + text[stop:j] for i, j, _ in marked(text) if i < start < j]
    inside = any(len(_words(span)) <= 1 for span in spans)  # or what lies between two prices is no formula
    own, left, right = _flat(text[start:stop], inside), _flat(before, inside), _flat(behind, inside)
    right = re.sub(r"^ *(?:\^ *\\circ(?![A-Za-z])|\\?%)", "", right)
    head, rest = re.sub(r"[ $(\[\"'\u201c]*$", "", left), re.sub(r"^[ $)\]\"\u201d]*", "", right)
    near = [left[len(head) :], right[: len(right) - len(rest)]]
    gaps = ["$" if "$" in gap or (" " in gap and not inside) else " " if " " in gap else "" for gap in near]
    return bool(
        not _is_within(before)
        # a sign, and not the dash of a list
        and (not head.endswith("-") or "=" in own or text.startswith("\\boxed", start))
        and _LEFT.search(head + (" " if near[0][:1] == " " else "") + gaps[0].strip())
        and _RIGHT.match(gaps[1] + rest)
        and not _is_denied(_flat(text[max(start - LONGEST, 0) : start], inside), own.strip(" $"), right)
    )


def _is_denied(before: str, number: str = "", behind: str = "") -> bool:
    """Whether a sentence takes a number back, or uses it: as an operand, a bound, an example or a guess."""
    return bool(_IS_DENIED.search(f"{_CLAUSE.split(before[-LONGEST:])[-1]}\0{number[:LONGEST]}\1{behind[:LONGEST]}"))


def _flat(text: str, inside: bool) -> str:
    text = text.replace("\n", " ") if inside else text
    for layout, by in _LAYOUT.items():
        text = layout.sub(by, text)
    return text


def _is_within(before: str) -> bool:
    """Whether the argument of a command is still open at the end of a text, as of a root or a power; or a matrix."""
    opened, begins = list[int](), dict[int, int]()
    for at, character in enumerate(before):
        if character in "{[" and before[at - 1 : at] != "\\":
            opened.append(at)
        elif character in "}]" and before[at - 1 : at] != "\\" and opened:
            begins[at + 1] = opened.pop()
    for at in opened:
        bracket = before[at]
        while at in begins:  # further arguments of the command
            at = begins[at]
        command = re.search(r"(?:\\([A-Za-z]+)\*?|[\^_])\s*$", before[max(at - 40, 0) : at])
        if bracket == "{" and command and not re.fullmatch(_DRESS, command[1] or ""):
            return True
    return re.findall(r"\\(begin|end)\s*\{[^}]*matrix", before)[-1:] == ["begin"]


def boxed(text: str) -> str:
    r"""The formula in the last box of a text, "" if it is no answer: none, an operand (`stands_alone`), one of several.

    Of ``\boxed{1/2} = 0.5`` it is the equation.
    """
    start, place = text.rfind("\\boxed"), _last_box(text)
    if not text[place] or not stands_alone(text, start, place.stop + 1):
        return ""
    end = start
    while (at := text.rfind("\\boxed", 0, end)) >= 0:  # boxes joined to it
        other = _last_box(text[:end])
        gap = text[other.stop + 1 : end]
        if len(gap) > LONGEST or other.stop >= end or not _JOINED.fullmatch(_flat(gap, inside=False)):
            break
        if text[other] != text[place] and not _ask(latex(text[other]), latex(text[place])):
            return ""
        end = at
    chain = re.match(r"\s*(?:=|\\approx(?![A-Za-z]))(?:(?!\\[)\]\\])[^$\n])*", text[place.stop + 1 :])
    return text[place] + (chain[0].rstrip(" .,;") if chain else "")


def _words(text: str) -> list[str]:
    text = re.sub(r"\\[A-Za-z]+(?:\s?\{[A-Za-z ]*\})?", "", text)
    return re.findall(r"(?<![\\A-Za-z])[^\W\d_]{2,}|[\u3040-\u9fff]", text)


def plain_signs(text: str) -> str:
    """A text with the signs of LaTeX in place of those of Unicode and Markdown."""
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    text = _VULGAR.sub(_fraction, _APPLAUSE.sub("", text))
    text = _POWERS.sub(lambda found: f"^{{{unicodedata.normalize('NFKC', found[0])}}}".replace("\u2212", "-"), text)
    text = "".join(chr(ord(c) - 0xFEE0) if "\uff01" <= c <= "\uff5e" else c for c in text).translate(_SIGNS)
    text = _ROOT.sub(lambda found: rf"\sqrt{_DEGREE[found[1]]}{{{found[2].strip('()')}}}", text)
    text = re.sub(r"(?<=\d)\s*x\s*(?=10\s?\^)|(?<=\d) x (?=\$?\d+\s*=)", r"\\cdot ", re.sub("<<[^<>]*>>", "", text))
    text = re.sub(r"\^(-\d+)", r"^{\1}", text)
    text = re.sub(r"(?<=[\d)])\*\*(?=[\d(-])", "^", text)
    text = re.sub(r"\*\*|__|`|^[ \t]*(?:#+|>)\s", "", text, flags=re.MULTILINE)
    for markup, by in _MARKUP.items():
        text = markup.sub(by, text)
    text = _DOTTED.sub(lambda found: found[0].replace(".", "").replace(",", "."), text)
    text = _AREA.sub(r"\1", re.sub(rf"(?<=\d)(?=(?:{_UNITS})\b)", " ", text))
    text = re.sub(r"(?<![\w*_)}\\])([*_])([^\s*_](?:[^*_\n]*[^\s*_])?)\1(?![\w*_({\\])", r"\2", text)
    return _SCIENTIFIC.sub(lambda found: rf"{found[1]}\cdot 10^{{{int(found[2])}}}", text)


def _fraction(found: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", found[2]).partition("\u2044")
    return rf"\frac{{{int(found[1][-30:] or 0) * int(below) + int(above)}}}{{{below}}}"


def latex(formula: str) -> str:
    """A formula without what does not count: units, the dress of letters, spaces between thousands."""
    if len(formula) > LONGEST:
        return ""
    for pattern, by in _OTHER_DRESS.items():
        formula = pattern.sub(by, formula.strip().strip("$").strip())
    formula = _UNIT.sub("", formula)
    if dressed := _DRESSED.fullmatch(formula):
        formula = dressed[1].strip() if len(dressed[1].strip()) == 1 else formula
    formula = re.sub(r"^\(([A-Za-z])\)$", r"\1", formula)
    formula = re.sub(r"^([-+]?)\s*\\?\$\s*", r"\1", _DEGREES.sub("", formula))
    formula = _GROUPED.sub(lambda found: re.sub(r"\D", "", found[0]), formula)
    formula = _REPEATED.sub(_repeated, formula)
    formula = re.sub(r"^(-?)\s*(\d+)\s*\\[dtc]?frac\s?(\d)(\d)$", r"\1\2\\frac{\3}{\4}", formula)
    if mixed := _MIXED.fullmatch(formula):
        sign, whole, above, below = mixed[1], mixed[2], mixed[3] or mixed[5], mixed[4] or mixed[6]
        formula = rf"{sign}\frac{{{int(whole) * int(below) + int(above)}}}{{{int(below)}}}"
    return "" if _BESIDE.search(formula) else formula.strip()


def _repeated(found: re.Match[str]) -> str:
    whole, fixed, period = found.groups()
    value = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed)) + Fraction(f"{whole or 0}.{fixed or 0}")
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _last_in_sentence(text: str) -> str:
    """The last formula in a sentence, "" if it is part of another expression, or the sentence takes it back."""
    whole = len(text)
    text = re.sub(r"\\?\$\s?(?=\d)", "", text[-2 * LONGEST :])
    runs = [run for run in _RUN.finditer(text) if re.search(r"\d|\\pi", run[0])]
    if not runs or (runs[-1].start() == 0 and whole > 2 * LONGEST):
        return ""  # there is none, or it begins before the part that is looked at
    run = runs[-1]
    after, before = text[run.end() :], text[: run.start()]
    formula = run[0].strip().strip(",;:").rstrip(".,;:&").strip()
    if formula.startswith("="):
        formula, before = formula[1:], f"{before}="
        if not re.search(r"(?:^|\s)(?:[A-Za-z]|[A-Z]{2}|[A-Za-z]{3,})\s*=$", before):
            return ""
    operand = re.match(r"[-+*/]\s", formula) and re.search(r"(?<![^\W\d])[A-Za-z]\s*$", before)
    if operand or _GOES_ON.search(after) or _is_denied(before, formula, after):
        return ""
    return latex(formula if formula.count("(") == formula.count(")") else formula.strip("()"))


def marked(text: str) -> list[tuple[int, int, str]]:
    """Every formula in dollars or brackets: where it begins, where it ends, and its text. Takes one pass."""
    unclosed = set()  # marks that are not closed in the rest of the text, so that it is searched only once for each
    formulas = []
    at = 0
    while opened := _OPEN.search(text, at):
        start, mark = opened.start(), opened[0]
        at = start + 1
        inside = start + len(mark)
        # $$$$ and \(\) are empty, and not a formula.
        end = -1 if mark in unclosed else text.find(_CLOSE[mark], inside + (mark != "$"))
        if end < 0:
            unclosed.add(mark)
        # A dollar before a digit does not end a formula: it is money ($5 and $7).
        elif mark != "$" or (end > inside and not text[end + 1 : end + 2].isdigit()):
            at = end + len(mark)
            formulas.append((start, at, text[inside:end]))
    return formulas


def in_last_box(text: str) -> str:
    r"""The text in the braces after the last ``\boxed``; "" if none open there, or they are never closed."""
    return text[_last_box(text)]


def _last_box(text: str) -> slice:
    start = text.rfind("\\boxed") + len("\\boxed")
    start += len(text[start:]) - len(text[start:].lstrip(" "))
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return slice(start + 1, max(i, start + 1))
    return slice(len(text), len(text))


class _Worker:
    """The process that compares, started when it is first asked, and again after it was killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.lock = threading.Lock()

    def ask(self, *request: str) -> bool:
        """What the process says of a request; False if it does not answer in time.

        Raises:
            RuntimeError: If the installed math-verify cannot even read a number.
        """
        with self.lock:
            said = ""
            try:
                if self.process is None or self.process.poll() is not None:
                    self._start()
                said = self._exchange(list(request), SECONDS)
            except OSError:  # the process has died
                pass
            finally:
                if not said:  # out of time, dead, or interrupted while it works: what it says next is not for us
                    self.stop()
            return said == "true"

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("math_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        if self._exchange(["1"], STARTING) != "true":
            raise RuntimeError("math-verify cannot read the formula 1: install the version in pyproject.toml")

    def _exchange(self, request: list[str], seconds: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline().strip() if selector.select(seconds) else ""

    def stop(self) -> None:
        """Kills the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with suppress(OSError):  # what was written last may not have reached it
                    pipe.close()  # type: ignore[union-attr]
            self.process = None


_WORKER = _Worker()
atexit.register(_WORKER.stop)


@lru_cache(maxsize=4096)
def _ask(*request: str) -> bool:
    if any(len(text) > 2 * LONGEST for text in request) or not all(request):
        return False
    return _WORKER.ask(*request)

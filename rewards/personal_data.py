"""Personal data in text: where is an e-mail address, a phone number, a card number, an account number?

Each function returns what it found, in order. All run in time linear in the text, whatever stands in it: quantifiers
are bounded, possessive, or tied to a rare character (test_a_very_long_text_is_read_in_no_time).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# One character before the @ is enough to know an address; looking for all of them from the left would be quadratic.
EMAIL = re.compile(r"(?<=[\w.%+-])@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,8}+")
# +49 171 1234567 and +1 (555) 123-4567; 555-123-4567 and (555) 123 4567; 0171 1234567 and 030/1234567; 01 23 45 67 89.
PHONE = re.compile(
    r"""(?<![\w+]) (?<!\d[-./]) (?:
        (?: \+ | (?<!\d[ ])00(?=[1-9]\d{0,2}[ ./-]) ) [1-9]\d{0,14}+ (?: [ ]?\(\d{1,4}\) | [ ./-]\d{1,12}+ ){0,5}+
      | (?:1[ .-])? (?: \(\d{3}\)[ ]?\d{3} | \d{3}[.-]\d{3} | [2-9]\d\d[ ][2-9]\d\d ) [ .-]\d{4}
      | (?<!\d[ ]) 0[1-9]\d{1,3} [ /-] \d{3,4} (?: [ -]?\d{3,4} | \d{2,5} )
      | (?<!\d[ ]) 0[1-9] (?: [ .-]\d\d ){4}
    ) (?! \w | [-./]\d )""",
    re.ASCII | re.VERBOSE,
)
CARD = re.compile(
    r"(?<!\w)(?:\d{13,19}+|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{4}([ -])\d{6}\2\d{4,5})(?!\w)", re.ASCII
)
# First digits and lengths of Visa, Mastercard, American Express, Discover, JCB, Diners Club and UnionPay.
ISSUER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:6011|65\d\d|64[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}",
    re.ASCII,
)
IBAN_HEAD = re.compile(r"(?<!\w)[A-Z]{2}[0-9]{2}(?=[ ]?[A-Z0-9])", re.ASCII | re.IGNORECASE)
# Country -> characters of its account numbers (the SWIFT registry).
IBAN_LENGTH = {
    country: int(length)
    for length, countries in {
        "15": "NO",
        "16": "BE",
        "18": "DK FI FK FO GL NL SD",
        "19": "MK SI",
        "20": "AT BA EE KZ LT LU MN XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA",
        "23": "AE GI IL IQ OM SO TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST",
        "26": "IS TR",
        "27": "BI DJ FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HN HU LB NI PL SV",
        "29": "BR EG PS QA UA",
        "30": "JO KW MU YE",
        "31": "MT SC",
        "32": "LC",
        "33": "RU",
    }.items()
    for country in countries.split()
}
SHORTEST_PHONE = 8  # digits; with fewer, a plus sign more often stands before an amount


def emails(text: str) -> list[str]:
    """Where each begins is not looked for: they are given from the @ on. A host without a name (10.0.0.1) is none."""
    found = (match[0] for match in EMAIL.finditer(text))
    return [host for host in found if any(len(label) > 1 and label.isalpha() for label in host.split(".")[1:])]


def phones(text: str) -> list[str]:
    return [match[0] for match in PHONE.finditer(text) if sum(map(str.isdigit, match[0])) >= SHORTEST_PHONE]


def cards(text: str) -> list[str]:
    """Numbers of an issuer's length and first digits whose check digit is right."""
    found = (match[0] for match in CARD.finditer(text))
    return [number for number in found if _is_card(re.sub("[ -]", "", number))]


def ibans(text: str) -> list[str]:
    """Account numbers of their country's length whose check digits are right; groups may be divided by spaces."""
    found = []
    for head in IBAN_HEAD.finditer(text):
        length = IBAN_LENGTH.get(head[0][:2].upper())
        rest = length and re.compile(rf"(?:[ ]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])").match(text, head.end())
        if rest and has_iban_check(number := (head[0] + rest[0]).replace(" ", "")):
            found.append(number)
    return found


def has_luhn_check(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812): Luhn's sum is a multiple of 10."""
    doubled = "0246813579"  # twice a digit, its own digits added up
    return sum(int(doubled[int(d)] if k % 2 else d) for k, d in enumerate(reversed(digits))) % 10 == 0


def has_iban_check(number: str) -> bool:
    """Whether the check digits are right (ISO 13616): 1 modulo 97, the first four last and letters as 10 to 35."""
    return int("".join(str(int(character, 36)) for character in number[4:] + number[:4])) % 97 == 1


def _is_card(digits: str) -> bool:
    return ISSUER.fullmatch(digits) is not None and has_luhn_check(digits)


FINDERS: Mapping[str, Callable[[str], list[str]]] = {"email": emails, "phone": phones, "card": cards, "iban": ibans}

# ruff: noqa: D103 - what is reviewed is shown bare
"""Small functions to review. Their annotations say what they are tried on; they are shown without."""

from __future__ import annotations

# Kinds of values that a function is tried on, see `inputs`.
nat = pos = year = int
word = letter = sentence = numeral = brackets = str
ints = sorted_ints = maybe_ints = list[int]
table = maybe_dict = dict[str, int]
span = tuple[int, int]


def clamp(value: int, low: int, high: int):
    if low > high:
        raise ValueError("low above high")
    if value < low:
        return low
    if value > high:
        return high
    return value


def running_total(numbers: ints):
    total = 0
    totals = []
    for number in numbers:
        total += number
        totals.append(total)
    return totals


def chunks(items: ints, size: pos):
    parts = []
    for start in range(0, len(items), size):
        parts.append(items[start : start + size])
    return parts


def find_all(text: word, part: letter):
    places = []
    at = text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + 1)
    return places


def is_palindrome(text: word):
    left, right = 0, len(text) - 1
    while left < right:
        if text[left] != text[right]:
            return False
        left += 1
        right -= 1
    return True


def collect(item: int, into: maybe_ints = None):
    if into is None:
        into = []
    into.append(item)
    return into


def count_words(text: sentence, counts: maybe_dict = None):
    if counts is None:
        counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def pairs_up_to(limit: nat, found: maybe_ints = None):
    if found is None:
        found = []
    for number in range(limit):
        if number % 2 == 0:
            found.append(number)
    return found


def tag(name: word, tags: maybe_dict = None):
    if tags is None:
        tags = {}
    tags[name] = len(tags)
    return tags


def remember(value: int, seen: maybe_ints = None):
    if seen is None:
        seen = []
    if value in seen:
        return False
    seen.append(value)
    return value + len(seen)


def binary_search(items: sorted_ints, wanted: int):
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == wanted:
            return middle
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def second_largest(numbers: ints):
    first = second = None
    for number in numbers:
        if first is None or number > first:
            first, second = number, first
        elif second is None or number > second:
            second = number
    return second


def run_lengths(text: word):
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1][1] += 1
        else:
            runs.append([letter, 1])
    return runs


def leap_year(year: year):
    if year % 400 == 0:
        return True
    if year % 100 == 0:
        return False
    return year % 4 == 0


def greatest_divisor(first: pos, second: pos):
    while second:
        first, second = second, first % second
    return first


def is_prime(number: nat):
    if number < 2:
        return False
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True


def digits_sum(number: nat):
    total = 0
    while number > 0:
        total += number % 10
        number //= 10
    return total


def to_binary(number: nat):
    if number == 0:
        return "0"
    digits = ""
    while number:
        digits = str(number % 2) + digits
        number //= 2
    return digits


def without_repeats(items: ints):
    kept = []
    for item in items:
        if item in kept:
            continue
        kept.append(item)
    return kept


def parse_int(text: numeral, fallback: int):
    try:
        return int(text)
    except ValueError:
        return fallback


def positive(number: int):
    if number <= 0:
        raise ValueError("must be positive")
    return number


def average(numbers: ints):
    if not numbers:
        raise ValueError("no numbers")
    return sum(numbers) / len(numbers)


def get_price(prices: table, name: letter):
    if name not in prices:
        raise KeyError(name)
    return prices[name] * 2


def withdraw(balance: nat, amount: int):
    if amount <= 0:
        raise ValueError("amount must be positive")
    if amount > balance:
        raise ValueError("not enough")
    return balance - amount


def discount(price: nat, percent: int):
    if percent < 0 or percent > 100:
        raise ValueError("percent out of range")
    return price - price * percent // 100


def shipping(weight: nat, express: bool):
    if weight <= 1:
        cost = 4
    elif weight <= 5:
        cost = 7
    else:
        cost = 12
    return cost * 2 if express else cost


def page(items: ints, number: pos, size: pos):
    start = (number - 1) * size
    end = start + size
    return items[start:end]


def rotate(items: ints, steps: int):
    if not items:
        return items
    steps = steps % len(items)
    return items[-steps:] + items[:-steps]


def merge(left: sorted_ints, right: sorted_ints):
    merged = []
    while left and right:
        if left[0] <= right[0]:
            merged.append(left[0])
            left = left[1:]
        else:
            merged.append(right[0])
            right = right[1:]
    return merged + left + right


def first_index(items: ints, wanted: int):
    for index, item in enumerate(items):
        if item == wanted:
            return index
    return None


def caesar(text: word, shift: int):
    shifted = ""
    for letter in text:
        if not letter.isalpha():
            shifted += letter
            continue
        shifted += chr((ord(letter) - 97 + shift) % 26 + 97)
    return shifted


def balanced(text: brackets):
    depth = 0
    for letter in text:
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def split_bill(total: nat, people: pos):
    share = total // people
    rest = total % people
    return [share + 1] * rest + [share] * (people - rest)


def minutes_between(start: nat, end: nat):
    if end < start:
        end += 1440
    return end - start


def overlap(first: span, second: span):
    start = max(first[0], second[0])
    end = min(first[1], second[1])
    return max(0, end - start)


def invert(prices: table):
    names = {}
    for name, price in prices.items():
        names.setdefault(price, []).append(name)
    return names


def longest_run(numbers: ints):
    best = run = 0
    for index, number in enumerate(numbers):
        if index > 0 and number > numbers[index - 1]:
            run += 1
        else:
            run = 1
        best = max(best, run)
    return best


def truncate(text: sentence, width: nat):
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    return text[: width - 3] + "..."


def fibonacci(count: nat):
    numbers = []
    now, then = 0, 1
    for _ in range(count):
        numbers.append(now)
        now, then = then, now + then
    return numbers


def majority(items: ints):
    for item in items:
        if items.count(item) * 2 > len(items):
            return item
    return None


def stop_at_zero(numbers: ints):
    total = 0
    for number in numbers:
        if number == 0:
            break
        total += number
    return total


def skip_negative(numbers: ints):
    total = 0
    for number in numbers:
        if number < 0:
            continue
        total += number
    return total


class Later:
    """A value that is there when it is awaited."""

    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value
        yield


def fetch(number):
    return Later(number * 2)


async def fetch_and_add(number: int, more: int):
    found = await fetch(number)
    return found + more


async def fetch_all(numbers: ints):
    total = 0
    for number in numbers:
        total += await fetch(number)
    return total


async def fetch_larger(first: int, second: int):
    one = await fetch(first)
    other = await fetch(second)
    return one if one > other else other


async def fetch_until(numbers: ints, limit: int):
    found = []
    for number in numbers:
        value = await fetch(number)
        if value > limit:
            break
        found.append(value)
    return found


def checked_sum(numbers: ints):
    for number in numbers:
        if number < 0:
            raise ValueError("negative")
    return sum(numbers)


def item_at(items: ints, index: int):
    if index < 0 or index >= len(items):
        raise IndexError(index)
    return items[index]


def parse_pair(text: brackets):
    if ")" not in text:
        raise ValueError("no bracket")
    left, right = text.split(")", 1)
    return [left, right]


def letters_by_place(text: letter, places: maybe_dict = None):
    if places is None:
        places = {}
    for index, letter in enumerate(text):
        places.setdefault(letter, []).append(index)
    return places


def queue_up(name: letter, queue: maybe_ints = None):
    if queue is None:
        queue = []
    queue.append(name)
    return len(queue)

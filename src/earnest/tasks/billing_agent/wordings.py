"""How customers ask, by family and split: no wording stands in two splits, so that success on new ones is understanding.

`{which}` is oldest, newest or largest, `{month}` the name of a month, `{before}` that of the one before, `{kind}` a line of an invoice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

UNPAID: Mapping[str, Sequence[str]] = {
    "train": (
        "Which invoice is our {which} unpaid one?",
        "Please give me the number of the {which} open invoice on our account.",
        "We still owe you money. What is the {which} invoice not yet settled?",
        "Our bookkeeper needs the {which} invoice that is outstanding.",
        "Looking for the {which} bill we forgot to pay, can you tell me its number?",
        "Of all invoices that are open, name the {which}.",
        "There is a reminder from you on my desk. Which is the {which} invoice it can mean?",
        "Our bank wants the number of the {which} invoice we have yet to pay.",
        "I am about to send you money: for which invoice, if I start with the {which}?",
        "What is due? Only the {which} invoice, please.",
        "Somebody left before paying everything. The {which} invoice that was left lying, please.",
        "Is anything unpaid? Then tell me the {which}.",
        "My list says we are behind. Number of the {which} invoice still open?",
        "Which bill do we owe you? If there are several, the {which} of them.",
        "For the transfer I need the {which} open invoice's number.",
        "Give me the {which} of the bills that we did not pay.",
        "We want to be even with you. Name the {which} invoice that is missing its payment.",
        "Before the year ends we clear our debts: the {which} unsettled invoice is?",
        "Please find the {which} invoice for which no money arrived.",
        "How is the {which} invoice called that we have not paid?",
    ),
    "dev": (
        "I want to clear our {which} debt first: which invoice number is that?",
        "Could you look up what we have not paid yet and tell me the {which}?",
    ),
    "test": (
        "Something has not been paid by us, I fear. The {which} such invoice, please.",
        "Tell me the {which} of the invoices awaiting our money.",
        "Auditors ask for our {which} overdue document. Its number?",
        "Invoice still to be paid, the {which} if there are several: what do I put in the transfer?",
        "You wrote that we are in arrears. The {which} bill concerned, please.",
        "The {which} one among the invoices we owe: its number?",
        "Nobody here paid for a while. What is the {which} invoice left open?",
        "Name the {which} bill that waits for us to pay it.",
    ),
}

PAID: Mapping[str, Sequence[str]] = {
    "train": (
        "How much did we pay you in {month}?",
        "Please tell me the total of our payments in {month}.",
        "What amount did you collect from us during {month}?",
        "For my books: the sum you took from our card in {month}.",
        "Add up what went through from us in {month}, please.",
        "In {month}, what did CloudLedger cost us in payments that succeeded?",
        "Sum of our successful payments, {month}?",
        "I need what we paid in {month}, as one number.",
        "What did you get from us in {month}?",
        "The tax office asks what we paid you in {month}.",
        "{month}'s payments from us: how much in all?",
        "How much money went from our card to you in {month}?",
        "Tell me the amount that we paid during {month}.",
        "Our statement of {month} is lost. What did we pay CloudLedger?",
        "What was taken from us in {month}, failed attempts left out?",
        "Please sum up {month}: everything that you received from us.",
        "My boss wants to know what {month} cost us, going by what was paid.",
        "What did our payments of {month} come to?",
        "For {month} I have no receipt. How much did I pay?",
        "Which sum left our account for you in {month}?",
    ),
    "dev": (
        "Our accounts for {month} lack one number: the money you received.",
        "I cannot find {month}'s bank statement. What left our account for you?",
    ),
    "test": (
        "Could you say what our {month} charges came to altogether?",
        "{month}: which total was really debited?",
        "I am reconciling {month} and want to know everything that was successfully charged.",
        "Total received by you from this customer, month of {month}?",
        "What have we spent with you in {month}, counting only payments that worked?",
        "Give me {month} as a figure: all that was paid.",
        "Our ledger misses what you were paid in {month}. How much was it?",
        "Please check {month} and report the amount you were given.",
    ),
}

DOUBLE: Mapping[str, Sequence[str]] = {
    "train": (
        "Did you charge us twice for one invoice last month? By how much too much, after refunds?",
        "I think last month a bill was taken from our card two times. How much do you still owe us for that?",
        "Please look whether we paid any of last month's invoices double, and what amount of it is not yet refunded.",
        "Was there a duplicate charge in our last month? Tell me the amount that has not come back.",
    ),
    "dev": ("Same invoice, two charges, last month: true or not? I need the sum you have yet to return.",),
    "test": (
        "My bank shows odd things for last month. If an invoice was collected more than once, what is the surplus you still hold?",
        "Have we been billed doubly during the past month, and for how much are we out of pocket?",
    ),
}

REFUND: Mapping[str, Sequence[str]] = {
    "train": (
        "You charged us twice for the same invoice last month. Please refund the extra charge.",
        "Last month one invoice was paid double from our card. Send the second payment back.",
        "There was a duplicate payment last month, refund what is left of it, please.",
        "I want the money back that you took a second time last month for one and the same invoice.",
    ),
    "dev": ("Undo last month's double collection if there was one, and say how much we get.",),
    "test": (
        "If an invoice was debited two times in the past month, return the later debit to us.",
        "Kindly reverse the surplus charge of last month. It was the very same bill.",
    ),
}

PARTIAL: Mapping[str, Sequence[str]] = {
    "train": (
        "We never used the {kind} on last month's invoice. Please refund that line, before tax.",
        "The line {kind} of last month's bill was a mistake that your sales team promised to pay back, without tax.",
        "Please return the net amount of the {kind} line that we paid last month, nothing else.",
    ),
    "dev": ("Only {kind} of the last month should come back to us, net, as agreed.",),
    "test": (
        "As agreed with your colleague: reimburse the {kind} position (net) from our invoice of last month.",
        "Give us back what {kind} cost last month, tax stays with you.",
    ),
}

DIFFERENCE: Mapping[str, Sequence[str]] = {
    "train": (
        "Why is our {month} invoice not the same as in {before}? Name the line and the difference.",
        "Which line makes the invoice of {month} differ from {before}, and by how much before tax?",
        "We paid something else in {month} than in {before}. Tell me the line that changed and by what amount.",
    ),
    "dev": ("Compare {before} with {month}: one line of our bill moved. Which, and how far?",),
    "test": (
        "Explain the gap between our bills of {before} and {month}: line and net amount.",
        "Between {before} and {month} our total changed. I need the cause as line plus sum.",
    ),
}

# (words, whether the plan gets larger, whether only the price is asked for)
PLAN: Mapping[str, Sequence[tuple[str, bool, bool]]] = {
    "train": (
        ("Move us to the next larger plan today. What is due for the rest of the month?", True, False),
        ("Please upgrade our account by one plan now and tell me the amount due.", True, False),
        ("What would one plan up cost us for the rest of this month? Do not change anything.", True, True),
        ("Only asking: if we upgraded to the next plan today, what would be due?", True, True),
        ("Move us down one plan today. How much credit is that?", False, False),
        ("We think about the next smaller plan. Which credit would we get today? Leave it as it is for now.", False, True),
    ),
    "dev": (
        ("We have grown: book the plan above ours, from today, and name the extra charge.", True, False),
        ("Just curious what stepping up by one plan would be charged at now, without doing it.", True, True),
    ),
    "test": (
        ("Switch this account up by one tier as of now, and let me know what we owe for it.", True, False),
        ("Before I decide: price for the remaining days on the tier above our own? Do nothing yet.", True, True),
        ("Business is slow, put us one tier lower immediately. What do we get credited?", False, False),
    ),
}

# (reason, words that need a person, nearly the same words that need none)
PERSON: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "train": (
        ("legal", "Our lawyer will take you to court over this.", "Our lawyer will take this list to court as an exhibit in another case."),
        ("legal", "We are going to sue you.", "We are going to Sue, our accountant, with it."),
        ("fraud", "A thief is using our card for your charges.", "A colleague is using our card for your charges, which is fine."),
        (
            "fraud",
            "We never ordered this, somebody opened the account in our name.",
            "We ordered this, somebody opened the account in our name, as I asked.",
        ),
        (
            "deletion",
            "And delete all personal data that you hold on us.",
            "And I deleted all personal data that we hold in your app, no need to act.",
        ),
        ("deletion", "Then erase everything you know about me.", "Then I can erase everything I noted about it."),
    ),
    "dev": (
        (
            "legal",
            "A claim against you has been filed by our solicitor.",
            "A claim on our insurer has been filed by our solicitor, he asks for it.",
        ),
        ("fraud", "Our account was hacked and criminals pay with it.", "Our door was hacked open, so the papers are gone."),
        ("deletion", "We also demand erasure under the GDPR.", "We also sell training about the GDPR."),
    ),
    "test": (
        (
            "legal",
            "My attorney is preparing a lawsuit against CloudLedger.",
            "My attorney is preparing our tax return and uses CloudLedger.",
        ),
        ("fraud", "These debits are fraud: a stranger has our bank details.", "These debits are fine: a new clerk has our bank details."),
        ("deletion", "Remove my personal records from your systems for good.", "Remove my personal greeting from your emails if you like."),
    ),
}

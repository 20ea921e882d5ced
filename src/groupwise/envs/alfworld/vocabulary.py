"""Every word that ALFWorld's games contain, for a tokenizer made from scratch."""

from __future__ import annotations

NAMES = (
    "alarmclock apple armchair baseballbat basketball bathtub bathtubbasin bed blinds book boots bowl box bread "
    "butterknife cabinet candle cart cd cellphone chair cloth coffeemachine coffeetable countertop creditcard cup "
    "curtains desk desklamp diningtable dishsponge drawer dresser egg floorlamp footstool fork fridge garbagecan "
    "glassbottle handtowel handtowelholder houseplant kettle keychain knife ladle laptop laundryhamper "
    "laundryhamperlid lettuce lightswitch microwave mirror mug newspaper ottoman painting pan papertowelroll pen "
    "pencil peppershaker pillow plate plunger poster pot potato remotecontrol safe saltshaker scrubbrush shelf "
    "showerdoor showerglass sidetable sink sinkbasin soapbar soapbottle sofa spatula spoon spraybottle statue "
    "stoveburner stoveknob teddybear television tennisracket tissuebox toaster toilet toiletpaper "
    "toiletpaperhanger tomato towel towelholder tvstand vase watch wateringcan window winebottle"
)
"""Kinds of receptacles and things in the released games."""
GOAL_WORDS = "a and at clean cool examine find heat hot in it look on put some the them two under with"
"""Words of the tasks beside those kinds."""
SENTENCES = (
    "You are in the middle of a room. Looking quickly around you, you see a, and a. Your task is to:",
    "You arrive at. The is open. In it, you see nothing. The is closed. On the, you see. You open the. You close the.",
    "You pick up the from the. You move the to the. You turn on the. You sliced the with the. You clean heat cool",
    "using",
    "You are facing the. Next to it, you see nothing. You are carrying: a. You are not carrying anything.",
    "This is a normal. This is a hot and clean sliced cool cold. This is on. There's nothing special about.",
    "go to take from move to open close examine use heat with clean cool slice look inventory",
)
"""Every word of the sentences and commands, names aside."""

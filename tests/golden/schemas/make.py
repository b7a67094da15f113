"""make.py: schemas as the Python packages of pydantic and openai write them, of 64 models of all kinds.
takes: pydantic and openai from PyPI (made with pydantic 2.x and openai 2.x; the first line of output says which).
gives: pydantic.jsonl beside it: a schema a line; model_json_schema of each model, and the strict form that openai's
       package makes of it for tools and answers, where it makes one and that differs.
next:  ../../unit/schemas.c"""
import collections
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import sys
import uuid
from typing import Annotated, Any, Deque, Dict, FrozenSet, List, Literal, NamedTuple, Optional, Set, Tuple, Union

import openai
import pydantic
from openai.lib._pydantic import to_strict_json_schema
from pydantic import (AnyUrl, BaseModel, ConfigDict, EmailStr, Field, HttpUrl, NegativeFloat, NonNegativeInt,
                      PositiveInt, RootModel, StringConstraints, conint, conlist, constr)
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = 'red'
    GREEN = 'green'
    BLUE = 'blue'


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = 'a'
    B = 2
    C = None


class Plain(BaseModel):
    name: str
    age: int
    score: float
    alive: bool


class Defaults(BaseModel):
    name: str = 'nobody'
    count: int = 3
    tags: List[str] = []
    extra: Dict[str, int] = {}


class Optionals(BaseModel):
    a: Optional[str] = None
    b: Optional[int]
    c: Union[int, str, None] = None


class Unions(BaseModel):
    value: Union[int, str, List[int]]
    other: Union[bool, float]


class Nested(BaseModel):
    plain: Plain
    more: List[Plain]
    by_name: Dict[str, Plain]


class Literals(BaseModel):
    kind: Literal['a', 'b', 'c']
    number: Literal[1, 2, 3]
    mixed: Literal['x', 4, None]
    one: Literal['only']


class Enums(BaseModel):
    color: Color
    level: Level = Level.LOW
    mixed: Optional[Mixed] = None


class Cat(BaseModel):
    kind: Literal['cat']
    lives: int


class Dog(BaseModel):
    kind: Literal['dog']
    breed: str


class Lizard(BaseModel):
    kind: Literal['lizard', 'gecko']
    scales: bool = True


class Discriminated(BaseModel):
    pet: Annotated[Union[Cat, Dog, Lizard], Field(discriminator='kind')]


class DiscriminatedList(BaseModel):
    pets: List[Annotated[Union[Cat, Dog], Field(discriminator='kind')]] = Field(min_length=1, max_length=3)


class Numbers(BaseModel):
    a: int = Field(gt=0, le=100)
    b: float = Field(ge=-1.5, lt=2.25)
    c: PositiveInt
    d: NonNegativeInt
    e: NegativeFloat
    f: conint(ge=3, multiple_of=3)


class Multiples(BaseModel):
    five: int = Field(multiple_of=5)
    percent: int = Field(ge=0, le=1000, multiple_of=25)
    odd: int = Field(gt=-50, multiple_of=7)


class Strings(BaseModel):
    short: str = Field(min_length=1, max_length=8)
    code: str = Field(pattern=r'^[A-Z]{2}-\d{3}$')
    both: str = Field(pattern=r'^[a-z][a-z0-9_]*$', min_length=2, max_length=30)
    con: constr(strip_whitespace=True, to_lower=True, max_length=12)
    ann: Annotated[str, StringConstraints(pattern=r'\d', max_length=40)]


class Lists(BaseModel):
    a: List[int] = Field(min_length=2)
    b: conlist(str, min_length=1, max_length=2)
    c: List[List[float]]
    d: list
    e: List[Any]


class Sets(BaseModel):
    colors: Set[Color]
    flags: FrozenSet[bool]
    words: Set[str]
    numbers: Set[int] = Field(min_length=1)
    letters: Set[Literal['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']] = Field(max_length=3)


class Tuples(BaseModel):
    pair: Tuple[int, str]
    many: Tuple[float, ...]
    nested: Tuple[Tuple[int, int], Color]
    empty: Tuple[()]


class Dicts(BaseModel):
    counts: Dict[str, int]
    by_color: Dict[Color, float]
    by_kind: Dict[Literal['x', 'y'], bool]
    nested: Dict[str, Dict[str, List[int]]]
    any: dict


class Keys(BaseModel):
    codes: Dict[Annotated[str, StringConstraints(pattern=r'^[a-z]{3}$')], int]
    short: Dict[Annotated[str, StringConstraints(min_length=2, max_length=5)], str]
    few: Dict[str, int] = Field(min_length=1, max_length=3)
    by_number: Dict[int, str]
    by_uuid: Dict[uuid.UUID, bool]


class Times(BaseModel):
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time
    span: datetime.timedelta


class Aware(BaseModel):
    at: pydantic.AwareDatetime
    past: pydantic.PastDate
    future: Optional[pydantic.FutureDatetime] = None


class Names(BaseModel):
    id: uuid.UUID
    four: pydantic.UUID4
    mail: EmailStr
    page: HttpUrl
    link: AnyUrl
    store: pydantic.PostgresDsn


class Addresses(BaseModel):
    four: ipaddress.IPv4Address
    six: ipaddress.IPv6Address
    any: pydantic.IPvAnyAddress
    net: ipaddress.IPv4Network


class Paths(BaseModel):
    path: pathlib.Path
    file: pydantic.FilePath
    folder: pydantic.DirectoryPath


class Money(BaseModel):
    price: decimal.Decimal
    limited: decimal.Decimal = Field(max_digits=6, decimal_places=2, gt=0)
    maybe: Optional[decimal.Decimal] = None


class Binary(BaseModel):
    data: bytes
    short: bytes = Field(max_length=10)
    encoded: pydantic.Base64Bytes
    text: pydantic.Base64Str
    secret: pydantic.SecretStr
    packed: pydantic.Json


class Queues(BaseModel):
    queue: Deque[int]
    limited: Deque[str] = Field(max_length=3)
    counter: collections.OrderedDict[str, int]


class Tree(BaseModel):
    value: int
    left: Optional['Tree'] = None
    right: Optional['Tree'] = None


class Node(BaseModel):
    name: str
    children: List['Node'] = []


class Expression(BaseModel):
    op: Literal['+', '-', '*']
    args: List[Union['Expression', float]]


class LinkedA(BaseModel):
    b: Optional['LinkedB'] = None


class LinkedB(BaseModel):
    a: Optional[LinkedA] = None
    text: str


class Closed(BaseModel):
    model_config = ConfigDict(extra='forbid')
    name: str
    size: Optional[int] = None


class Open(BaseModel):
    model_config = ConfigDict(extra='allow')
    name: str


class TypedExtra(BaseModel):
    model_config = ConfigDict(extra='allow')
    __pydantic_extra__: Dict[str, int]
    name: str


class Aliased(BaseModel):
    first: str = Field(alias='firstName', title='First', description='The first name', examples=['Ann'])
    class_: str = Field(alias='class', deprecated=True)
    dotted: int = Field(alias='a.b/c "d"')


class Annotated_(BaseModel):
    """A docstring that becomes a description."""
    model_config = ConfigDict(title='Nice', json_schema_extra={'examples': [{'a': 1}], 'x-order': 3})
    a: int = Field(json_schema_extra={'x-unit': 'm', 'markdownDescription': '**a**'})


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: Literal['fixed'] = 'fixed'
    b: Tuple[int, int, int] = (1, 2, 3)


class Point(NamedTuple):
    x: float
    y: float


class Movie(TypedDict, total=False):
    title: str
    year: int


class Structures(BaseModel):
    point: Point
    movie: Movie
    points: List[Point]


@pydantic.dataclasses.dataclass
class Data:
    a: int
    b: str = 'b'
    c: Optional[List[int]] = None


class HoldsData(BaseModel):
    data: Data


class Generic(BaseModel):
    anything: Any
    nothing: None = None
    obj: object = None


class Computed(BaseModel):
    a: int

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return 2 * self.a


class Base(BaseModel):
    id: int


class Derived(Base):
    name: str


class Further(Derived):
    id: int = Field(ge=10)
    tags: Set[Color] = set()


class Ints(RootModel[List[int]]):
    pass


class Names_(RootModel[Dict[str, Color]]):
    pass


class Either(RootModel[Union[Cat, Dog]]):
    pass


class Action(BaseModel):
    kind: Literal['give', 'take', 'say']
    target: Optional[str]
    amount: Annotated[int, Field(ge=1, le=99)] = 1


class Npc(BaseModel):
    mood: Literal['calm', 'angry', 'afraid']
    say: Annotated[str, Field(max_length=200)]
    actions: Annotated[List[Action], Field(max_length=3)]
    trust: Annotated[int, Field(ge=-2, le=2)]


class Item(BaseModel):
    name: str = Field(min_length=1)
    weight: float = Field(ge=0)
    tags: Set[Literal['sharp', 'heavy', 'magic', 'old', 'stolen', 'gift', 'broken']] = Field(default_factory=set)


class Inventory(BaseModel):
    owner: str
    items: List[Item] = Field(max_length=5)
    gold: Optional[NonNegativeInt] = None


class Quest(BaseModel):
    title: str
    steps: List[Union[Action, 'Quest']] = Field(min_length=1, max_length=4)
    reward: Union[Item, PositiveInt, None] = None


class Weather(BaseModel):
    """Get the weather of a place."""
    location: str
    unit: Literal['c', 'f'] = 'c'


class Column(str, enum.Enum):
    ID = 'id'
    STATUS = 'status'


class Condition(BaseModel):
    column: Column
    operator: Literal['=', '>', '<', '<=', '>=', '!=']
    value: Union[str, int, 'OtherColumn']


class OtherColumn(BaseModel):
    column_name: str


class Query(BaseModel):
    table_name: Literal['orders', 'customers']
    columns: List[Column]
    conditions: List[Condition]
    order_by: Optional[Literal['asc', 'desc']] = None


class Step(BaseModel):
    explanation: str
    output: str


class MathResponse(BaseModel):
    steps: List[Step]
    final_answer: str


class Universe(BaseModel):
    galaxy: 'Galaxy' = Field(description='the galaxy')


class Star(BaseModel):
    name: str = Field(description='The name of the star.')


class Galaxy(BaseModel):
    name: str
    largest_star: Star = Field(description='The largest star.')


class Calendar(BaseModel):
    name: str
    date: datetime.date
    start: Optional[datetime.time]
    participants: List[str] = Field(max_length=10)


class Pydantic1(BaseModel):
    """Options that only some emit."""
    pattern_list: List[Annotated[str, StringConstraints(pattern='^#[0-9a-f]{6}$')]]
    ratio: float = Field(ge=0, le=1)
    port: int = Field(ge=1, le=65535)
    version: str = Field(pattern=r'^\d+\.\d+\.\d+$')
    mac: str = Field(pattern=r'^([0-9A-F]{2}:){5}[0-9A-F]{2}$')
    slug: str = Field(pattern=r'^[a-z0-9]+(?:-[a-z0-9]+)*$', max_length=50)


class UnionOfModels(BaseModel):
    which: Union[Plain, Closed, Item]
    several: List[Union[Cat, Dog, str]]


class DictOfUnion(BaseModel):
    data: Dict[str, Union[int, float, str, bool, None, List['DictOfUnion']]]


class DefaultModel(BaseModel):
    inner: Plain = Plain(name='a', age=1, score=0.5, alive=True)
    color: Color = Color.RED
    maybe: Optional[Plain] = None


class SetOfDates(BaseModel):
    days: Set[datetime.date] = Field(max_length=2)
    ids: Set[uuid.UUID]


class Wide(BaseModel):
    a1: int
    a2: Optional[int] = None
    a3: str = ''
    a4: Optional[str] = None
    a5: bool = False
    a6: Optional[float] = None
    a7: List[int] = []
    a8: Optional[Color] = None
    a9: Dict[str, str] = {}
    a10: Optional[Literal['x', 'y']] = None


MODELS = [Plain, Defaults, Optionals, Unions, Nested, Literals, Enums, Discriminated, DiscriminatedList, Numbers,
          Multiples, Strings, Lists, Sets, Tuples, Dicts, Keys, Times, Aware, Names, Addresses, Paths, Money, Binary,
          Queues, Tree, Node, Expression, LinkedA, Closed, Open, TypedExtra, Aliased, Annotated_, Frozen, Structures,
          HoldsData, Generic, Computed, Derived, Further, Ints, Names_, Either, Npc, Item, Inventory, Quest, Weather,
          Query, MathResponse, Universe, Calendar, Pydantic1, UnionOfModels, DictOfUnion, DefaultModel, SetOfDates, Wide,
          Action, Condition, Cat, Star, Base]


def main():
    texts = []
    for model in MODELS:
        model.model_rebuild()
        texts.append(json.dumps(model.model_json_schema(), ensure_ascii=False))
        texts.append(json.dumps(model.model_json_schema(mode='serialization'), ensure_ascii=False))
        try:
            texts.append(json.dumps(to_strict_json_schema(model), ensure_ascii=False))
            texts.append(json.dumps(openai.pydantic_function_tool(model)['function']['parameters'],
                                    ensure_ascii=False))
        except Exception as error:  # openai's package does not make a strict form of every model
            print(model.__name__, 'has no strict form:', error)
    texts = list(dict.fromkeys(texts))
    path = pathlib.Path(__file__).with_name('pydantic.jsonl')
    path.write_text(''.join(text + '\n' for text in texts))
    print(f'pydantic {pydantic.VERSION}, openai {openai.__version__}: {len(MODELS)} models, {len(texts)} schemas,',
          path.stat().st_size, 'bytes')


sys.exit(main())

"""A pipeline of scikit-learn that takes rows of a table: a pydantic model describes a row, and its limits are checked.

It needs the extra `rest`, and scikit-learn, pandas and pydantic. Requests that wait are one call of the pipeline.
"""

import os
from typing import Annotated, Literal

import httpx
import pandas as pd
from pydantic import BaseModel, Field
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pytriton import Triton, batch
from pytriton.rest import RestConfig

PORT = int(os.environ.get("PORT", "8080"))


class Flat(BaseModel):
    """A flat that is to let."""

    city: Literal["Bonn", "Ulm"]
    rooms: Annotated[int, Field(ge=1, le=20)]
    area_m2: Annotated[float, Field(gt=0)]
    balcony: bool = False


FLATS = pd.DataFrame(
    {
        "city": ["Bonn", "Ulm", "Bonn", "Ulm", "Bonn", "Ulm"],
        "rooms": [1, 2, 3, 4, 2, 1],
        "area_m2": [30.0, 55.0, 80.0, 110.0, 60.0, 28.0],
        "balcony": [False, True, True, True, False, False],
    }
)
RENTS = [12 * area + 100 * (city == "Bonn") for city, area in zip(FLATS["city"], FLATS["area_m2"], strict=True)]

pipeline = make_pipeline(
    make_column_transformer(
        (OneHotEncoder(), ["city"]), (StandardScaler(), ["rooms", "area_m2"]), remainder="passthrough"
    ),
    LinearRegression(),
).fit(FLATS, RENTS)


@batch
def rent(flat: list[Flat]) -> list[float]:
    """The rent of a flat, in euros per month."""
    return pipeline.predict(pd.DataFrame([each.model_dump() for each in flat])).round(2).tolist()


def main() -> None:
    with Triton(rest=RestConfig(port=PORT)) as triton:
        triton.bind(rent)
        url = f"http://localhost:{PORT}/predict/rent"
        print(httpx.post(url, json={"flat": {"city": "Bonn", "rooms": 2, "area_m2": 50}}).text)
        for problem in httpx.post(url, json={"flat": {"city": "Rome", "rooms": 0}}).json()["error"]["details"]:
            print(f"{problem['path']}: expected {problem['expected']}, got {problem['got']}")


if __name__ == "__main__":
    main()

#!/bin/bash
IFS=, read -r -a files <<<"$1"
pytest -v "${files[@]}"

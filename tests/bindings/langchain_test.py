"""langchain_test.py: LangChain's published suites for chat models over demo/bindings/python/langchain_exl2.py. By hand,
as the suites come from PyPI and need a real model:

    pip install langchain-core langchain-tests
    EXL2_LIBRARY=build/libexl2.so EXL2_TEST_MODEL=FOLDER PYTHONPATH=demo/bindings/python \\
        python -m pytest --asyncio-mode=auto tests/bindings/langchain_test.py
"""

import os

from langchain_exl2 import ChatExl2
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

MODEL = os.environ["EXL2_TEST_MODEL"]


class TestUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return ChatExl2

    @property
    def chat_model_params(self):
        return {"model": MODEL, "backend": "cpu"}


class TestIntegration(ChatModelIntegrationTests):
    """Left at the suite's defaults, and so skipped: another model's name in a call, images, sound and PDF, recordings
    of HTTP, Anthropic's message formats."""

    @property
    def chat_model_class(self):
        return ChatExl2

    @property
    def chat_model_params(self):
        return {"model": MODEL, "backend": "cpu", "context": 2048, "max_tokens": 256, "temperature": 0}

    @property
    def supports_json_mode(self):
        return True

"""A service on data of five classes, and clients of it."""

import signal

import pytest
from serving.service import BEARER, NAMES, TOKEN, K, Server

from evencover import ClasswisePredictor, save


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, K, seed=17)


@pytest.fixture(scope="module")
def fitted(data):
    predictor = ClasswisePredictor(score="aps")
    return predictor.fit(data.rows[:300], data.labels[:300], class_names=NAMES)


@pytest.fixture
def model(fitted, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def serve(model, tmp_path):
    """A client of a service with a state, a token and limits."""
    from starlette.testclient import TestClient

    from evencover.serving.bodies import Limits
    from evencover.serving.http import Application
    from evencover.serving.service import Service

    clients = []

    def start(path=model, token=TOKEN, state=tmp_path / "watch.db", watch=False, **limits):
        service = Service(path, state)
        application = Application(service, token=token, limits=Limits(**limits), watch=watch)
        client = TestClient(application.asgi(), headers=BEARER if token else {})
        client.service = service
        clients.append(client.__enter__())
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serve):
    return serve()


@pytest.fixture
def folder(model):
    return model.parent


@pytest.fixture
def start(folder):
    """Servers in processes of their own, which end with the test."""
    servers = []

    def begin(*options):
        servers.append(Server(folder, "--state", "watch.db", *options))
        return servers[-1]

    yield begin
    for server in servers:
        server.end(signal.SIGKILL)

"""stable-baselines3: DQN, whose numbers are the host's; PPO and SAC, which draw on the device."""

import tempfile

import gymnasium
import numpy as np
import torch
from case import case
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy


class Follow(gymnasium.Env):
    """Eight steps, each with a number to follow: its sign, or the number itself."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact
        box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = box if exact else gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.left = 8
        return self.look(), {}

    def look(self) -> np.ndarray:
        self.seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen

    def step(self, action: object) -> tuple:
        if self.exact:
            reward = 1 - abs(float(action[0]) - float(self.seen[0]))
        else:
            reward = float((self.seen[0] > 0) == bool(action))
        self.left -= 1
        return self.look(), reward, self.left == 0, False, {}


def kept(model: BaseAlgorithm) -> BaseAlgorithm:
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        again = type(model).load(f"{folder}/model", env=model.get_env())
    assert again.device == model.device
    for name, value in model.policy.state_dict().items():
        assert torch.equal(again.policy.state_dict()[name], value), name
    return again


def reward(model: BaseAlgorithm) -> float:
    return float(evaluate_policy(model, model.get_env(), n_eval_episodes=8, warn=False)[0])


def learned(model: BaseAlgorithm, steps: int, least: float) -> tuple[object, list[float]]:
    before = reward(model)
    model.learn(steps)
    after = reward(kept(model))
    assert after > max(before, least), (before, after)
    return model.device, [1.0]


@case("DQN, 200 steps, saved and loaded", 1e-3)
def dqn() -> tuple[object, list[float]]:
    model = DQN(
        "MlpPolicy", Follow(), seed=0, learning_starts=50, batch_size=16, gamma=0.0,
        learning_rate=1e-3, policy_kwargs={"net_arch": [16]},
    )  # fmt: skip
    model.learn(200)
    weights = [value.sum().item() for value in kept(model).policy.state_dict().values()]
    return model.device, weights


@case("PPO, 1,024 steps: whether it has learned")
def ppo() -> tuple[object, list[float]]:
    model = PPO(
        "MlpPolicy", Follow(), seed=0, n_steps=128, batch_size=64, gamma=0.0, learning_rate=1e-2,
        policy_kwargs={"net_arch": [16]},
    )  # fmt: skip
    return learned(model, 1024, 7.0)


@case("SAC, 400 steps: whether it has learned")
def sac() -> tuple[object, list[float]]:
    model = SAC(
        "MlpPolicy", Follow(exact=True), seed=0, learning_starts=64, batch_size=64, gamma=0.0,
        learning_rate=1e-2, policy_kwargs={"net_arch": [16]},
    )  # fmt: skip
    return learned(model, 400, 6.5)


@case("an explicit device='cpu' is the CPU")
def on_cpu() -> tuple[object, list[float]]:
    model = PPO("MlpPolicy", Follow(), seed=0, n_steps=64, device="cpu")
    model.learn(64)
    assert model.device.type == "cpu"
    return "tpu is not taken" if hasattr(torch, "tpu") else model.device, [reward(model)]

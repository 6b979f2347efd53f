"""torch-geometric: convolutions over a graph, batches of graphs, pooling, auto-encoders."""

import torch
from case import case
from torch import nn
from torch_geometric import utils
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GAE,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    RGCNConv,
    SAGEConv,
    TopKPooling,
    TransformerConv,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.seed import seed_everything

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def graph(nodes: int = 24, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=generator)
    x = torch.randn(nodes, 8, generator=generator)
    return Data(x, utils.to_undirected(edges), y=(x.sum(1) > 0).long())


class Net(nn.Module):
    def __init__(self, kind: type, **options: object) -> None:
        super().__init__()
        self.first, self.second = kind(8, 16, **options), kind(16, 2, **options)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edges, *more).relu(), edges, *more)


def train(net: nn.Module, *given: torch.Tensor, wanted: torch.Tensor) -> list[float]:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(*given), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@case("node classification: GCN, SAGE, GAT, GATv2, Transformer", 5e-4)
def nodes() -> tuple[object, list[float]]:
    data = graph().to(DEVICE)
    found = []
    for kind in (GCNConv, SAGEConv, GATConv, GATv2Conv, TransformerConv):
        seed_everything(0)
        net = Net(kind).to(DEVICE)
        found += train(net, data.x, data.edge_index, wanted=data.y)
    return data.x.device, found


@case("edges of several types: RGCN", 5e-4)
def types() -> tuple[object, list[float]]:
    data = graph().to(DEVICE)
    seed_everything(0)
    kinds = torch.arange(data.num_edges, device=DEVICE) % 3
    net = Net(RGCNConv, num_relations=3).to(DEVICE)
    return data.x.device, train(net, data.x, data.edge_index, kinds, wanted=data.y)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GINConv(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.pool, self.last = TopKPooling(16, ratio=0.5), nn.Linear(32, 2)

    def forward(self, data: Data) -> torch.Tensor:
        x = self.conv(data.x, data.edge_index).relu()
        x, _, _, batch, _, _ = self.pool(x, data.edge_index, batch=data.batch)
        size = data.num_graphs
        found = [global_mean_pool(x, batch, size), global_max_pool(x, batch, size)]
        return self.last(torch.cat(found, 1))


@case("graph classification: batches, GIN, TopKPooling, mean and maximum", 5e-4)
def graphs() -> tuple[object, list[float]]:
    every = [graph(10 + i, i) for i in range(8)]
    for i, one in enumerate(every):
        one.y = torch.tensor([i % 2])
    seed_everything(0)
    net = Classifier().to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for batch in DataLoader(every, batch_size=4):
            batch = batch.to(DEVICE)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(batch), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return batch.x.device, losses


@case("utilities: softmax, degree, dense batches, subgraphs, loops")
def tools() -> tuple[object, list[float]]:
    data = graph().to(DEVICE)
    edges = data.edge_index
    weights = torch.linspace(0, 1, data.num_edges, device=DEVICE)
    found = [*utils.softmax(weights, edges[1])[:6], *utils.degree(edges[0])[:6]]
    halves = torch.arange(24, device=DEVICE) // 12
    dense, mask = utils.to_dense_batch(data.x, halves)
    found += [dense.sum(), mask.sum(), utils.to_dense_adj(edges).sum()]
    kept, _ = utils.subgraph(list(range(12)), edges, relabel_nodes=True)
    more, _ = utils.add_self_loops(utils.remove_self_loops(edges)[0])
    found += [kept.shape[1], kept.sum(), more.shape[1], utils.scatter(weights, edges[0]).sum()]
    assert utils.is_undirected(edges) == utils.is_undirected(edges.cpu())
    return dense.device, found


@case("GAE: edges rebuilt", 5e-4)
def rebuilt() -> tuple[object, list[float]]:
    data = graph().to(DEVICE)
    seed_everything(0)
    model = GAE(Net(GCNConv)).to(DEVICE)
    away = torch.randint(0, 24, (2, 40), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model.recon_loss(model.encode(data.x, data.edge_index), data.edge_index, away)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return data.x.device, losses

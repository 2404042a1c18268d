/** Where the apps of a cluster are: which shard holds an app, and which node holds the shard. */
import { countWhile } from '../../../base/bisect.ts';

export interface NodeAddress {
  /** Host and port. */
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

/** The shards of all tables with the same apps, and where they are. */
export interface ShardPlacement<Node = NodeAddress> {
  readonly node: Node;
  /** Whether the node is the coordinator. */
  readonly isCoordinator: boolean;
  /** Smallest and largest hash of the apps. */
  readonly least: number;
  readonly most: number;
  readonly shard: number;
}

/** A SELECT of the places, from the metadata that every node has. */
export const READ_PLACEMENTS = `
  SELECT shardid::float8 AS shard, shardminvalue::float8 AS least, shardmaxvalue::float8 AS most,
         nodename AS host, nodeport AS port, groupid = 0 AS "isCoordinator"
    FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
   WHERE logicalrelid = to_regclass('events') AND noderole = 'primary'
   ORDER BY shardminvalue::float8`;

export interface PlacementRow extends Omit<ShardPlacement, 'node'> {
  readonly host: string;
  readonly port: number;
}

/** Numbers that are tried to find an app of each node. */
const MOST_TRIED = 10_000;

/** All places of a cluster at one time. */
export class PlacementTable<Node = NodeAddress> {
  readonly nodes: readonly Node[];
  readonly places: readonly ShardPlacement<Node>[];
  #samples: ReadonlyMap<ShardPlacement<Node>, number> | null = null;

  /** @param nodeAt the node at an address: the same object from one table to the next */
  constructor(rows: readonly PlacementRow[], nodeAt: (address: NodeAddress) => Node) {
    this.places = rows.map(({ host, port, ...place }) => ({
      ...place,
      node: nodeAt({ name: `${host}:${port}`, host, port }),
    }));
    this.nodes = [...new Set(this.places.map(({ node }) => node))];
  }

  /** @returns null for a cluster without shards */
  placeOf(appId: number): ShardPlacement<Node> | null {
    const hash = hashOf(appId);
    const at = countWhile(this.places.length - 1, (index) => hash > (this.places[index]?.most ?? 0));
    return this.places[at] ?? null;
  }

  /** For each node one of its places, with an app that is there. */
  get samples(): ReadonlyMap<ShardPlacement<Node>, number> {
    if (this.#samples !== null) return this.#samples;
    const samples = new Map<ShardPlacement<Node>, number>();
    const seen = new Set<Node>();
    for (let appId = 0; appId < MOST_TRIED && seen.size < this.nodes.length; appId += 1) {
      const place = this.placeOf(appId);
      if (place === null || seen.has(place.node)) continue;
      seen.add(place.node);
      samples.set(place, appId);
    }
    this.#samples = samples;
    return samples;
  }
}

const SEED = (0x9e3779b9 + 4 + 3_923_095) | 0;

/** PostgreSQL's hash of an integer (hashint4), by which Citus distributes: signed, 32 bits. */
export function hashOf(value: number): number {
  let a = (SEED + value) | 0;
  let b = SEED;
  let c = SEED;
  c = ((c ^ b) - rotated(b, 14)) | 0;
  a = ((a ^ c) - rotated(c, 11)) | 0;
  b = ((b ^ a) - rotated(a, 25)) | 0;
  c = ((c ^ b) - rotated(b, 16)) | 0;
  a = ((a ^ c) - rotated(c, 4)) | 0;
  b = ((b ^ a) - rotated(a, 14)) | 0;
  return ((c ^ b) - rotated(b, 24)) | 0;
}

function rotated(bits: number, by: number): number {
  return (bits << by) | (bits >>> (32 - by));
}

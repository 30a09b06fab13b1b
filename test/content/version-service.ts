import { closeSync, openSync, writeSync } from 'node:fs';
import { ApiError, TransportError } from '../../src/base/errors.ts';
import type {
  FetchedRange,
  FetchTarget,
  ListingPage,
  NewestBytes,
  NewestVersion,
  RemoteFile,
  RemoteVersion,
  WrittenExtent,
} from '../../src/base/resources.ts';
import type { Extent, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { VersionHistory, VersionSource } from '../../src/content/version-source.ts';
import { ArrivingChecksums } from '../../src/transfer/arriving-checksums.ts';
import type { RemoteListing } from '../../src/tree/remote-listing.ts';

interface StoredFile {
  readonly name: string;
  readonly versions: { readonly url: VersionUrl; readonly bytes: Buffer; readonly modifiedMs: number }[];
}

/**
 * A service in memory with one folder of files and their versions: what reading needs, written from the interface. Fetches can
 * be held, cut and refused, and are counted.
 */
export class VersionService implements VersionSource, VersionHistory, RemoteListing {
  readonly #files = new Map<ResourceUrl, StoredFile>();
  #nextVersion = 1;
  /** Every fetch that was asked for, in order. */
  readonly fetches: { readonly version: VersionUrl; readonly extent: Extent; readonly isAhead: boolean }[] = [];
  pins = 0;
  /** How often a whole history was asked for. */
  histories = 0;
  /** While set, fetches wait for it. */
  gate: Promise<void> | null = null;
  /** So many bytes of a fetch arrive in its file before it halts, for `haltedAt`. */
  bytesBeforeHalt = Number.POSITIVE_INFINITY;
  haltedAt: () => Promise<void> = async () => {};
  /** The clock that listings tell; null: they do not. */
  serverTimeMs: number | null = null;
  /** Set for a service that names the version of the newest bytes; called after it has read them. */
  namesVersionOf: ((file: ResourceUrl) => void) | null = null;
  /** The newest bytes that were asked for, in order. */
  readonly early: Extent[] = [];
  /** How many of the next fetches get no answer. */
  failuresLeft = 0;
  /** A service that knows no Range sends everything. */
  ignoresRange = false;

  put(
    name: string,
    bytes: Buffer,
    modifiedMs = 1_000_000,
  ): { readonly file: ResourceUrl; readonly version: VersionUrl } {
    const url = `http://127.0.0.1/file/${encodeURIComponent(name)}` as ResourceUrl;
    const file = this.#files.get(url) ?? { name, versions: [] };
    this.#files.set(url, file);
    const version = `${url}/version/${this.#nextVersion++}` as VersionUrl;
    file.versions.unshift({ url: version, bytes, modifiedMs });
    return { file: url, version };
  }

  remove(name: string): void {
    for (const [url, file] of this.#files) if (file.name === name) this.#files.delete(url);
  }

  rename(name: string, newName: string): void {
    for (const [url, file] of this.#files) if (file.name === name) this.#files.set(url, { ...file, name: newName });
  }

  /** The service keeps few versions: this one is gone. */
  dropVersion(version: VersionUrl): void {
    for (const file of this.#files.values()) {
      const at = file.versions.findIndex(({ url }) => url === version);
      if (at >= 0) file.versions.splice(at, 1);
    }
  }

  async newestVersion(file: ResourceUrl, signal: AbortSignal): Promise<NewestVersion | null> {
    this.pins++;
    const version = await this.#version(file, () => true, signal);
    return version === null ? null : { ...version, isFirst: this.#files.get(file)?.versions.length === 1 };
  }

  versionOfLength(file: ResourceUrl, sizeBytes: number, signal: AbortSignal): Promise<RemoteVersion | null> {
    return this.#version(file, ({ bytes }) => bytes.byteLength === sizeBytes, signal);
  }

  async #version(
    file: ResourceUrl,
    fits: (version: StoredFile['versions'][number]) => boolean,
    signal: AbortSignal,
  ): Promise<RemoteVersion | null> {
    await this.#trouble(signal);
    const newest = this.#files.get(file)?.versions.find(fits);
    if (newest === undefined) return null;
    const { url, bytes, modifiedMs } = newest;
    return { url, sizeBytes: bytes.byteLength, complete: true, lastModifiedMs: modifiedMs, mediaType: null };
  }

  async readNewest(
    file: ResourceUrl,
    extent: Extent,
    sizeBytes: number,
    signal: AbortSignal,
  ): Promise<NewestBytes | null> {
    if (this.namesVersionOf === null) return null;
    this.early.push(extent);
    await this.#trouble(signal);
    const newest = this.#files.get(file)?.versions[0];
    if (newest?.bytes.byteLength !== sizeBytes) return null;
    const { url, bytes } = newest;
    this.namesVersionOf(file);
    return { version: url, bytes: Uint8Array.from(bytes.subarray(extent.start, extent.end)) };
  }

  async versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]> {
    this.histories++;
    await this.#trouble(signal);
    return (this.#files.get(file)?.versions ?? []).map(({ url, bytes, modifiedMs }) => ({
      url,
      sizeBytes: bytes.byteLength,
      complete: true,
      lastModifiedMs: modifiedMs,
      mediaType: null,
    }));
  }

  async readVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    target: FetchTarget,
    written: (there: WrittenExtent) => void,
    signal: AbortSignal,
  ): Promise<FetchedRange> {
    this.fetches.push({ version, extent, isAhead: target.isAhead ?? false });
    await this.#trouble(signal);
    const stored = [...this.#files.values()].flatMap((file) => file.versions).find(({ url }) => url === version);
    if (stored === undefined) throw new ApiError(404, `GET ${version}/data`, 'no such version');
    if (extent.end > sizeBytes || sizeBytes !== stored.bytes.byteLength)
      throw new Error(`asked beyond the end: ${extent.start}-${extent.end}`);
    const sent = this.ignoresRange ? { start: 0, end: sizeBytes } : extent;
    const bytes = stored.bytes.subarray(sent.start, sent.end);
    if (target.kind === 'memory') return { extent: sent, bytes: Uint8Array.from(bytes), isLonger: this.ignoresRange };
    const fd = openSync(target.path, 'r+');
    try {
      const first = Math.min(this.bytesBeforeHalt, bytes.byteLength);
      writeSync(fd, bytes, 0, first, sent.start);
      const arriving = new ArrivingChecksums(sent.start);
      arriving.add(bytes.subarray(0, first));
      if (first === bytes.byteLength) arriving.end();
      written({ start: sent.start, end: sent.start + first, checksums: arriving.take() });
      if (first < bytes.byteLength) {
        await this.#halt(signal);
        writeSync(fd, bytes, first, bytes.byteLength - first, sent.start + first);
        written(sent);
      }
    } finally {
      closeSync(fd);
    }
    return { extent: sent, bytes: null };
  }

  async listPage(_folder: ResourceUrl, start: number): Promise<ListingPage> {
    const entries = [...this.#files].map(
      ([url, { name, versions }]): RemoteFile => ({
        kind: 'file',
        url,
        name,
        sizeBytes: versions[0]?.bytes.byteLength ?? null,
        lastModifiedMs: versions[0]?.modifiedMs ?? null,
        mediaType: null,
        presentOnServer: versions.length > 0,
      }),
    );
    return { entries: entries.slice(start), hasMore: false, serverTimeMs: this.serverTimeMs };
  }

  async resource(): Promise<null> {
    return null;
  }

  async #halt(signal: AbortSignal): Promise<void> {
    await this.haltedAt();
    signal.throwIfAborted();
  }

  async #trouble(signal: AbortSignal): Promise<void> {
    if (this.gate !== null) await this.gate;
    signal.throwIfAborted();
    if (this.failuresLeft > 0) {
      this.failuresLeft--;
      throw new TransportError('the line is cut');
    }
  }
}

import { decodeFileUpdate, encodeFile, encodeFileVersion, encodeFileVersions } from '../protocol/messages.ts';
import { requestedRange } from './byte-range.ts';
import type { Exchange } from './exchange.ts';
import { listingQuery } from './folder-handlers.ts';
import { checksToken, type HandlerTable, type Service } from './handler-table.ts';
import { endOf } from './list-page.ts';
import { pictureRequest } from './pictures.ts';
import { forbidden, malformed, notFound } from './refusal.ts';
import { DEFAULT_PAGE } from './repository.ts';
import type { FileRow, VersionRow } from './rows.ts';
import { blobToRead, uploadOffset } from './uploads.ts';

/** Files, their data and their versions (docs/service.md 6 and 7). */
export function fileHandlers(service: Service): HandlerTable {
  const { repository, collections, histories, uploads, blobs, documents, pictures } = service;

  const versionDocument = async (row: VersionRow) =>
    documents.version(row, row.complete ? row.sizeBytes : await uploads.storedBytes(row));

  const fileDocument = async (row: FileRow, caller: string) => {
    const { newest } = row;
    const head = (blob: string) => () => blobs.source(blob, PICTURE_HEAD_BYTES);
    const image = newest === null ? null : await pictures.image(head(newest.blob), row.mediaType);
    return encodeFile(documents.file(row, image, caller === row.uid));
  };

  return {
    file: {
      GET: async ({ exchange, endpoint, caller }) => {
        await exchange.sendXml(200, await fileDocument(await repository.file(caller, endpoint.id), caller));
      },
      PUT: async ({ exchange, endpoint, caller }) => {
        const { displayName, parent, mediaType, publicLink } = await exchange.decoded(decodeFileUpdate);
        const change = {
          name: displayName,
          parent: parent === undefined ? undefined : documents.parentOf(parent),
          mediaType: mediaType?.trim() === '' ? undefined : mediaType,
          publicLink: publicLink?.enabled,
        };
        const row = await repository.updateFile(caller, endpoint.id, change);
        await exchange.sendXml(200, await fileDocument(row, caller));
      },
      DELETE: async ({ exchange, endpoint, caller }) => {
        await repository.deleteFile(caller, endpoint.id);
        await exchange.sendEmpty(204);
      },
    },
    fileData: {
      GET: async ({ exchange, endpoint, caller, session }) => {
        const look = async (): Promise<Readable> => {
          const file = await repository.file(caller, endpoint.id);
          const newest = blobToRead(file.newest);
          const { entries } = await histories.list(file, 0, NEWEST_AMONG);
          const version = entries.find(({ seq }) => seq === newest.seq);
          const location = version === undefined ? undefined : `${documents.versionUrl(version)}/data`;
          return { name: file.name, mediaType: file.mediaType, ...newest, location };
        };
        await sendFile(service, exchange, caller, look, () => repository.mayReadOn(session, endpoint.id));
      },
      PUT: checksToken(async ({ exchange, endpoint, session }) => {
        // A client that continues here (docs/service.md 6.1) confuses a file with a version: the rest alone is not the file.
        if (uploadOffset(exchange.request.headers) !== 0) throw malformed('Range: a file comes whole');
        await uploads.replaceData(session, endpoint.id, exchange);
        await exchange.sendEmpty(204);
      }),
    },
    fileVersions: {
      GET: async ({ exchange, endpoint, query, caller }) => {
        const file = await repository.file(caller, endpoint.id);
        const { start, max } = listingQuery(query, repository.pageMax);
        const page = await histories.list(file, start ?? 0, max ?? Math.min(DEFAULT_PAGE, repository.pageMax));
        const versions = await Promise.all(
          page.entries.map(async (row) => ({ ...(await versionDocument(row)), ref: documents.versionUrl(row) })),
        );
        const bounds = { start: page.start, hasMore: page.hasMore, end: endOf(page) };
        await exchange.sendXml(200, encodeFileVersions({ ...bounds, versions }));
      },
      POST: async ({ exchange, endpoint, caller }) => {
        // The body has no meaning here, but some clients send one (docs/service.md 7.2).
        await exchange.document();
        const row = await histories.create(caller, endpoint.id);
        await exchange.sendEmpty(201, { Location: documents.versionUrl(row) });
      },
    },
    fileVersion: {
      GET: async ({ exchange, endpoint, caller }) => {
        const file = await repository.file(caller, endpoint.id);
        const row = await histories.version(file, endpoint.version);
        await exchange.sendXml(200, encodeFileVersion(await versionDocument(row)));
      },
    },
    fileVersionData: {
      GET: async ({ exchange, endpoint, caller, session }) => {
        const look = async (): Promise<Readable> => {
          const file = await repository.file(caller, endpoint.id);
          const row = await histories.version(file, endpoint.version);
          return { ...blobToRead(row.complete ? row : null), name: file.name };
        };
        await sendFile(service, exchange, caller, look, () => repository.mayReadOn(session, endpoint.id));
      },
      PUT: async ({ exchange, endpoint, caller, session }) => {
        const file = await repository.file(caller, endpoint.id, 'write');
        const row = await histories.version(file, endpoint.version);
        const offset = uploadOffset(exchange.request.headers);
        // ASSUMED (docs/service.md 7.5): the status. It is documented that a complete version never changes.
        if (row.complete) throw forbidden('The data of this version can not be replaced');
        const outcome = await uploads.append(session, file, row, offset, exchange);
        await exchange.sendXml(200, encodeFileVersion(await versionDocument(outcome)));
      },
    },
    publicLink: {
      GET: async ({ exchange, endpoint, query }) => {
        const look = async (): Promise<Readable> => {
          const file = await collections.linkedFile(endpoint.token);
          if (file === null) throw notFound();
          return { name: file.name, mediaType: file.mediaType, ...blobToRead(file.newest) };
        };
        if (query.get('directDownload') === 'true') {
          const isLinked = async (): Promise<boolean> => (await collections.linkedFile(endpoint.token)) !== null;
          return sendBlob(service, exchange, await whole(service, look), isLinked);
        }
        await exchange.sendHtml(200, linkPage((await look()).name));
      },
    },
  };
}

/** The newest complete version is among so many of the newest ones, unless more uploads are under way: then the answer does not name it. */
const NEWEST_AMONG = 8;

/** A complete version, with the name of its file. */
interface Readable {
  /** The URL of this version's data, if the request named another one. */
  readonly location?: string | undefined;
  readonly name: string;
  readonly mediaType: string;
  readonly blob: string;
  readonly sizeBytes: number;
}

/**
 * The version returned by `look`, after checking that its blob is complete. If few versions are kept, a newly completed
 * version deletes the blob of a row just read: then `look` runs again.
 *
 * @throws Error if blob and row still differ: that is damage, and must not be served as data
 */
async function whole({ blobs }: Service, look: () => Promise<Readable>): Promise<Readable> {
  for (let seen = await look(); ; ) {
    const storedBytes = await blobs.sizeBytes(seen.blob);
    if (storedBytes === seen.sizeBytes) return seen;
    const { blob, sizeBytes } = seen;
    seen = await look();
    if (seen.blob === blob) throw new Error(`a version of ${sizeBytes} bytes has ${storedBytes} bytes on the disk`);
  }
}

/** Sends the data unchanged, or transcoded to the picture that the Accept header requests. */
async function sendFile(
  service: Service,
  exchange: Exchange,
  caller: string,
  look: () => Promise<Readable>,
  mayReadOn: () => Promise<boolean>,
): Promise<void> {
  const picture = pictureRequest(exchange.request.headers.accept);
  const file = await whole(service, look);
  if (picture === null) return sendBlob(service, exchange, file, mayReadOn);
  const source = () => service.blobs.source(file.blob, PICTURE_BYTES_MAX);
  const jpeg = await service.pictures.scaled(source, file.mediaType, picture, {
    party: caller,
    isGone: () => exchange.request.socket.destroyed,
  });
  const headers = { 'Content-Type': 'image/jpeg', 'Content-Length': String(jpeg.byteLength) };
  await exchange.sendData(200, headers, [jpeg]);
}

/**
 * Data of a complete version, or the requested range of it (docs/service.md 6.4). Never compressed, never 304.
 * @param mayReadOn asked before each chunk: the reader may lose the permission during a long download
 */
async function sendBlob(
  service: Service,
  exchange: Exchange,
  { name, blob, sizeBytes, location }: Readable,
  mayReadOn: () => Promise<boolean>,
): Promise<void> {
  const { fault } = exchange;
  const range = fault.ignoreRange === true ? null : requestedRange(exchange.request.headers.range, sizeBytes);
  const { start, end } = range ?? { start: 0, end: sizeBytes };
  const shift = fault.wrongContentRange === true ? 1 : 0;
  const headers = {
    'Content-Type': 'application/octet-stream; charset=UTF-8',
    'Content-Length': String(end - start),
    'Accept-Ranges': 'bytes',
    'Content-Disposition': `attachment; filename*=UTF-8''${headerName(name)}`,
    ...(location === undefined ? {} : { 'Content-Location': location }),
    ...(range === null ? {} : { 'Content-Range': `bytes ${start + shift}-${end - 1 + shift}/${sizeBytes}` }),
  };
  const isEmpty = start === end || exchange.request.method === 'HEAD';
  const bytes = isEmpty ? [] : await service.blobs.read(blob, start, end);
  const status = range === null ? 200 : 206;
  if (!('next' in bytes)) return exchange.sendData(status, headers, bytes);
  try {
    await exchange.sendData(status, headers, whileAllowed(bytes, mayReadOn));
  } finally {
    // A response that is dropped before its body does not read the first chunk.
    await bytes.return?.();
  }
}

/** @throws Error within the data, which ends the connection */
async function* whileAllowed(
  chunks: AsyncIterable<Uint8Array>,
  mayReadOn: () => Promise<boolean>,
): AsyncGenerator<Uint8Array, void, undefined> {
  let isFirst = true;
  for await (const chunk of chunks) {
    if (!isFirst && !(await mayReadOn()))
      throw forbidden('The permission to read the file was withdrawn during the download');
    isFirst = false;
    yield chunk;
  }
}

/** RFC 8187; within the header size limits of other programs. */
function headerName(name: string): string {
  const short = name.length <= HEADER_NAME_CHARS_MAX ? name : [...name].slice(0, HEADER_NAME_CHARS_MAX).join('');
  return encodeURIComponent(short).replace(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

const HEADER_NAME_CHARS_MAX = 255;
/** Of an object; the properties of a picture are in its first bytes, after embedded previews and profiles. */
const PICTURE_HEAD_BYTES = 512 * 1024;
/** Of an object. Pictures within the limit of pixels are shorter. */
const PICTURE_BYTES_MAX = 64 * 1024 * 1024;

function linkPage(name: string): string {
  const shown = name.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
  return (
    `<!DOCTYPE html><html><head><meta charset="utf-8"><title>${shown}</title></head>` +
    `<body><h1>${shown}</h1><p><a href="?directDownload=true">Download</a></p></body></html>`
  );
}

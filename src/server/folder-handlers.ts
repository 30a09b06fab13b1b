import { ProtocolError } from '../base/errors.ts';
import type { ListingQuery, ResourceId } from '../protocol/endpoints.ts';
import { parseListingQuery } from '../protocol/endpoints.ts';
import {
  decodeFileCopy,
  decodeFolderUpdate,
  decodeNewFile,
  decodeNewFolder,
  encodeFolder,
} from '../protocol/messages.ts';
import type { Session } from './accounts.ts';
import { contentsXml } from './contents-xml.ts';
import { mediaTypeOf } from './default-media-type.ts';
import { decodedOr400, rootOr400 } from './exchange.ts';
import { checksToken, type HandlerTable, type Service } from './handler-table.ts';
import { malformed, notFound } from './refusal.ts';

/** Folders and their contents (docs/service.md 5). */
export function folderHandlers(service: Service): HandlerTable {
  const { repository, documents } = service;

  const create = async (caller: Session, parent: ResourceId, body: Uint8Array): Promise<string> => {
    switch (rootOr400(body)) {
      case 'folder': {
        const { displayName } = decodedOr400(body, decodeNewFolder);
        const id = await repository.createFolder(caller, parent, displayName);
        return documents.url({ kind: 'folder', id });
      }
      case 'file': {
        const { displayName, mediaType } = decodedOr400(body, decodeNewFile);
        const type = mediaTypeOf(displayName, mediaType);
        const id = await repository.createFile(caller, parent, displayName, type);
        return documents.url({ kind: 'file', id });
      }
      case 'fileCopy': {
        const { source, displayName } = decodedOr400(body, decodeFileCopy);
        const named = documents.parse(source);
        if (named?.kind !== 'file') throw notFound();
        const id = await repository.copyFile(caller, parent, named.id, displayName);
        return documents.url({ kind: 'file', id });
      }
      default:
        throw malformed();
    }
  };

  return {
    folder: {
      GET: async ({ exchange, endpoint, caller }) => {
        const { row, sharing, showsParent } = await repository.shownFolder(caller, endpoint.id);
        const shown = sharing === null ? { enabled: false } : { enabled: true, readAllowed: true, ...sharing };
        const document = documents.folder(row, shown, showsParent);
        await exchange.sendXml(200, encodeFolder(document));
      },
      POST: checksToken(async ({ exchange, endpoint, session }) => {
        const location = await create(session, endpoint.id, await exchange.document());
        await exchange.sendEmpty(201, { Location: location });
      }),
      PUT: async ({ exchange, endpoint, caller }) => {
        const update = await exchange.decoded(decodeFolderUpdate);
        const change = {
          name: update.displayName,
          parent: update.parent === undefined ? undefined : documents.parentOf(update.parent),
        };
        await repository.updateFolder(caller, endpoint.id, change);
        await exchange.sendEmpty(204);
      },
      DELETE: async ({ exchange, endpoint, caller }) => {
        await repository.deleteFolder(caller, endpoint.id);
        await exchange.sendEmpty(204);
      },
    },
    folderContents: {
      GET: async ({ exchange, endpoint, query, caller }) => {
        const page = await repository.list(caller, endpoint.id, listingQuery(query, repository.pageMax));
        await exchange.sendXml(200, await contentsXml(documents.contents(page), caller));
      },
    },
  };
}

/** A page has at most `pageMax` entries, whatever is asked for. @throws Refusal 400 that names the parameter */
export function listingQuery(query: URLSearchParams, pageMax: number): ListingQuery {
  try {
    const parsed = parseListingQuery(query);
    return parsed.max !== null && parsed.max > pageMax ? { ...parsed, max: pageMax } : parsed;
  } catch (error) {
    if (error instanceof ProtocolError) throw malformed(error.message);
    throw error;
  }
}

import type { ListingQuery } from '../protocol/endpoints.ts';
import {
  decodeSyncFolder,
  decodeWorkspaceUpdate,
  encodeAlbum,
  encodeContact,
  encodeReceivedShare,
  encodeReceivedShares,
  encodeUser,
  encodeWorkspace,
} from '../protocol/messages.ts';
import { contentsXml } from './contents-xml.ts';
import { listingQuery } from './folder-handlers.ts';
import type { Call, HandlerTable, Service } from './handler-table.ts';
import { namedPage, page, sorted } from './list-page.ts';
import { notFound, Refusal } from './refusal.ts';
import { DEFAULT_PAGE } from './repository.ts';

/**
 * Resources of an account, not of a folder: user, top level, workspaces, albums, shares, contacts (docs/service.md 4,
 * 8, 9).
 */
export function accountHandlers(service: Service): HandlerTable {
  const { accounts, repository, collections, documents } = service;

  const listing = async (call: Call<'userCollectionContents'>): Promise<string> => {
    const { caller, endpoint } = call;
    const query = listingQuery(call.query, repository.pageMax);
    switch (endpoint.collection) {
      case 'folders': {
        const top = await repository.listTop(caller, query);
        const entries = top.entries.map((row) => documents.collection(row, 'syncFolder'));
        return contentsXml(documents.collections({ ...top, entries }), caller);
      }
      case 'workspaces': {
        const workspaces = pageOf(await collections.workspaces(caller), query, repository.pageMax);
        const entries = workspaces.entries.map((row) => documents.workspaceEntry(row));
        return contentsXml(documents.collections({ ...workspaces, entries }), caller);
      }
      case 'albums': {
        const albums = pageOf(await collections.albums(caller), query, repository.pageMax);
        const entries = albums.entries.map((row) => documents.collection(row, 'album'));
        return contentsXml(documents.collections({ ...albums, entries }), caller);
      }
      case 'publicLinks': {
        // ASSUMED (docs/service.md 8.3): the form of this listing.
        const all = await collections.linkedFiles(caller);
        return contentsXml(documents.contents(pageOf(all, query, DEFAULT_PAGE)), caller);
      }
      case 'recentActivities':
        // ASSUMED (docs/service.md 8.3): only the URL is known.
        return contentsXml(documents.collections(page([], query.start ?? 0, DEFAULT_PAGE)), caller);
      case 'receivedShares':
        return encodeReceivedShares({
          shares: (await collections.receivedShares(caller)).map(({ folder, share }) =>
            documents.receivedShare(caller, folder, share),
          ),
        });
      default:
        return endpoint.collection satisfies never;
    }
  };

  return {
    user: {
      GET: async ({ exchange, endpoint, caller }) => {
        if (endpoint.uid !== null) mustBe(caller, endpoint.uid);
        const { row, usageBytes } = await accounts.user(caller);
        await exchange.sendXml(200, encodeUser(documents.user(row, usageBytes)));
      },
    },
    userCollection: {
      POST: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        if (endpoint.collection !== 'folders') throw new Refusal(405, 'Method not allowed');
        const { displayName } = await exchange.decoded(decodeSyncFolder);
        await repository.createSyncFolder(caller, displayName);
        // Without Location, like the service (docs/service.md 4.3).
        await exchange.sendEmpty(201);
      },
    },
    userCollectionContents: {
      GET: async (call) => {
        mustBe(call.caller, call.endpoint.uid);
        await call.exchange.sendXml(200, await listing(call));
      },
    },
    workspace: {
      GET: async ({ exchange, endpoint, caller }) => {
        await exchange.sendXml(
          200,
          encodeWorkspace(documents.workspace(await collections.workspace(caller, endpoint.id))),
        );
      },
      PUT: async ({ exchange, endpoint, caller }) => {
        // Its owner only, before the body counts.
        await collections.workspace(caller, endpoint.id);
        const { displayName } = await exchange.decoded(decodeWorkspaceUpdate);
        await collections.renameWorkspace(caller, endpoint.id, displayName);
        await exchange.sendEmpty(204);
      },
    },
    workspaceContents: {
      GET: async ({ exchange, endpoint, query: raw, caller }) => {
        const folders = await collections.workspaceFolders(caller, endpoint.id);
        const query = listingQuery(raw, repository.pageMax);
        const rows = query.type === 'file' ? [] : folders;
        const ordered = query.order === null ? rows : sorted(rows, query.order);
        const shown = pageOf(ordered, query, DEFAULT_PAGE);
        const entries = shown.entries.map((folder) => documents.collection(folder, 'syncFolder'));
        await exchange.sendXml(200, await contentsXml(documents.collections({ ...shown, entries }), caller));
      },
    },
    album: {
      GET: async ({ exchange, endpoint, caller }) => {
        await exchange.sendXml(200, encodeAlbum(documents.album(await collections.album(caller, endpoint.id))));
      },
    },
    albumContents: {
      GET: async ({ exchange, endpoint, query, caller }) => {
        await collections.album(caller, endpoint.id);
        const ofFiles = { ...listingQuery(query, repository.pageMax), type: 'file' } as const;
        const files = await repository.list(caller, endpoint.id, ofFiles);
        await exchange.sendXml(200, await contentsXml(documents.contents(files), caller));
      },
    },
    receivedShare: {
      GET: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        const { folder, share } = await collections.receivedShare(caller, endpoint.id);
        await exchange.sendXml(200, encodeReceivedShare(documents.receivedShare(caller, folder, share)));
      },
    },
    contact: {
      GET: async ({ exchange, endpoint, caller }) => {
        mustBe(caller, endpoint.uid);
        const other = await collections.contact(caller, endpoint.contact);
        const [firstName = '', ...rest] = other.nickname.split(' ');
        const contact = { primaryEmailAddress: other.email, firstName, lastName: rest.join(' ') };
        await exchange.sendXml(200, encodeContact(contact));
      },
    },
  };
}

/** URLs of another user and of no user get the same response. */
function mustBe(caller: string, uid: string): void {
  if (caller !== uid) throw notFound();
}

function pageOf<T extends { readonly name: string }>(all: readonly T[], query: ListingQuery, maxDefault: number) {
  return namedPage(all, query.start ?? 0, query.max ?? maxDefault);
}

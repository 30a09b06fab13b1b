import { FsError } from '../base/errors.ts';
import type { Answer, Entry, OpenReply } from '../kernel/binding.ts';

/** Refuses every modifying operation: the base of read-only folders. */
export class ReadOnlyOps {
  mkdir(): Answer<Entry> {
    return refused();
  }

  mknod(): Answer<Entry> {
    return refused();
  }

  tmpfile(): Answer<Entry & { readonly open: OpenReply }> {
    return refused();
  }

  symlink(): Answer<Entry> {
    return refused();
  }

  link(): Answer<Entry> {
    return refused();
  }

  unlink(): Answer<void> {
    return refused();
  }

  rmdir(): Answer<void> {
    return refused();
  }

  rename(): Answer<void> {
    return refused();
  }

  create(): never {
    return refused();
  }

  setattr(): never {
    return refused();
  }

  write(): Answer<number> {
    return refused();
  }

  fallocate(): Answer<void> {
    return refused();
  }

  setxattr(): Answer<void> {
    return refused();
  }

  removexattr(): Answer<void> {
    return refused();
  }
}

function refused(): never {
  throw new FsError('EROFS', 'this folder is read-only');
}

import { join } from 'node:path';
import type { Options } from '../config/options.ts';
import type { FileSystemOps, MountedFileSystem, MountOptions } from '../kernel/binding.ts';
import type { LinuxMount, LinuxMountDeps } from '../kernel/linux.ts';
import { MOUNTING_PROCESS } from './launch.ts';
import { successorEnvironment } from './mount-request.ts';
import { type SystemBinding, systemBindingOf } from './system-binding.ts';

/** A way to mount: one for each value of `--binding`. A mount uses exactly one. */
export interface Binding extends SystemBinding {
  /** @throws UsageError with a message */
  mount(options: MountOptions, ops: FileSystemOps, deps: BindingDeps): Promise<BoundMount>;
}

export interface BindingDeps extends LinuxMountDeps {
  readonly storeDirectory: string;
  /** A program waits for the end of this process, and decides what follows it. */
  readonly isForeground: boolean;
}

export interface BoundMount {
  readonly mounted: MountedFileSystem;
  /** The descriptor of the kernel connection; -1 if this process has none. */
  readonly descriptor: number;
  /** The counters of operations; null if the binding has none. */
  readonly counting: Pick<LinuxMount, 'metrics' | 'state' | 'features'> | null;
}

/** Each binding is loaded when it mounts, so that the others cost nothing. */
const MOUNTS: Readonly<Record<Options['binding'], Pick<Binding, 'mount'>>> = {
  linux: {
    async mount(options, ops, deps) {
      const { mountLinux } = await import('../kernel/linux.ts');
      const mounted = await mountLinux(options, ops, deps);
      return { mounted, descriptor: mounted.descriptor, counting: mounted };
    },
  },
  'fuse-native': {
    async mount(options, ops, deps) {
      const { mountFuseNative } = await import('../kernel/fuse-native/fuse-native-mount.ts');
      return { mounted: await mountFuseNative(options, ops, deps), descriptor: -1, counting: null };
    },
  },
  nfs: {
    async mount(options, ops, deps) {
      const { mountNfs } = await import('../nfs/nfs-mount.ts');
      const { readContinuedMount, reportServed } = await import('../nfs/continued-mount.ts');
      const env = successorEnvironment(process.env);
      const mounted = await mountNfs(options, ops, {
        ...deps,
        callsFile: deps.isForeground ? null : join(deps.storeDirectory, 'nfs-calls'),
        successor: deps.isForeground ? null : { command: MOUNTING_PROCESS, env },
        continued: readContinuedMount(),
        served: () => reportServed(),
      });
      return { mounted, descriptor: -1, counting: null };
    },
  },
};

/** The binding of the option `--binding`. */
export function bindingOf(options: Pick<Options, 'binding'>): Binding {
  return { ...systemBindingOf(options), ...MOUNTS[options.binding] };
}

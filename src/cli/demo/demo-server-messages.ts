/** The messages between `cfs demo` and its embedded server (a child process) over their IPC channel. */

export type DemoServerQuestion = { readonly type: 'prepare-user'; readonly email: string; readonly password: string };

export type DemoServerAnswer =
  | { readonly type: 'listening'; readonly origin: string }
  | { readonly type: 'failed'; readonly sentence: string; readonly exitCode: number }
  | {
      readonly type: 'user';
      readonly application: string;
      readonly accessKeyId: string;
      readonly privateAccessKey: string;
    };

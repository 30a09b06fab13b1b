import type { Answer } from '../kernel/binding.ts';

/** Continues with an answer: immediately if the file system gave it immediately. A turn of the event loop costs more than most calls. */
export function after<T, U>(answer: Answer<T>, next: (value: T) => Answer<U>): Answer<U> {
  return answer instanceof Promise ? answer.then(next) : next(answer);
}

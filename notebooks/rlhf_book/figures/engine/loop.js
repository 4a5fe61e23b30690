// Calls `work` again and again, with room for messages in between, until it returns false or is stopped.
//
// Every start has a number of its own, so that what was put off before a stop never runs after the next start: there is
// one loop at most, however fast a reader presses the button. `work` may return milliseconds to wait.
class Loop {
  constructor(work, later) {
    this.work = work;
    this.later = later; // (call, milliseconds)
    this.number = 0;
    this.running = false;
  }

  start() {
    const own = ++this.number;
    this.running = true;
    const turn = () => {
      if (own !== this.number) return;
      const wait = this.work();
      if (own !== this.number) return; // the work itself has stopped it
      if (wait === false) this.stop();
      else this.later(turn, wait || 0);
    };
    this.later(turn, 0);
  }

  stop() {
    this.number += 1;
    this.running = false;
  }
}

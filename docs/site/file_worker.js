// Browsers refuse workers, in which the search runs, to pages of a file system: there, run it in a frame.
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.appendChild(frame)
    this.inner = frame.contentWindow
    this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
    this.loaded = new Promise(done => {
      const script = this.inner.document.createElement("script")
      script.src = url
      script.onload = done
      this.inner.document.head.appendChild(script)
    })
  }
  postMessage(data) { this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data }))) }
  terminate() {}
}

"use strict";
// Draws the picture from the ranks in the page. No network, no storage, no markup made from text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const count = (n) => n.toLocaleString("en-US");
  const percent = (f) => {
    const p = 100 * f;
    return (p >= 99.95 ? p.toPrecision(4) : p === 0 ? "0" : p.toPrecision(3)).replace(/\.?0+$/, (z, i, s) =>
      s.includes(".") ? "" : z) + " %";
  };

  // Straight lines between measured points; null outside of them.
  const read = (xs, ys, x) => {
    if (x < xs[0] || x > xs[xs.length - 1]) return null;
    let i = 1;
    while (i < xs.length - 1 && xs[i] < x) i++;
    const step = xs[i] - xs[i - 1];
    return step === 0 ? ys[i] : ys[i - 1] + ((x - xs[i - 1]) / step) * (ys[i] - ys[i - 1]);
  };

  const markCharts = (share) => {
    for (const chart of data.charts) {
      const svg = $(chart.id);
      const [left, top, width, height] = chart.box;
      const [low, high] = chart.range;
      const x = left + share * width;
      svg.classList.add("live");
      const marker = svg.querySelector(".marker");
      marker.setAttribute("x1", x);
      marker.setAttribute("x2", x);
      const said = [];
      svg.querySelectorAll(".dot").forEach((dot, i) => {
        const line = chart.lines[i];
        const value = read(line.x, line.y, share);
        dot.setAttribute("cx", value === null ? -9 : x);
        dot.setAttribute("cy", value === null ? -9 : top + ((high - value) / (high - low)) * height);
        if (value !== null) said.push(`${line.label} ${value.toFixed(3)}`);
      });
      svg.parentNode.querySelector(".read").textContent = `At ${percent(share)}: ${said.join("; ")}`;
    }
  };

  const e = data.explore;
  if (!e) {
    // Without a picture to move the marker, pointing at a chart does.
    for (const chart of data.charts) {
      const svg = $(chart.id);
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
        markCharts(Math.min(1, Math.max(0, (at - chart.box[0]) / chart.box[2])));
      });
    }
    const slider = $("grow");
    if (data.grow && slider) {
      const grow = () => {
        const shown = Number(slider.value);
        document.querySelectorAll("[data-edge]").forEach((part) =>
          part.classList.toggle("later", Number(part.dataset.edge) > shown));
        const value = data.grow.values[shown];
        $("grown").textContent = `${count(shown)} of ${slider.max} edges` +
          (value === undefined ? "" : `: ${data.grow.label} ${value.toFixed(3)}`) +
          `; all edges ${data.grow.full.toFixed(3)}`;
        if (shown < Number(slider.max)) markCharts(shown / Number(slider.max));
      };
      slider.addEventListener("input", grow);
      grow();
    }
    return;
  }

  // Decode.
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const [channels, height, width] = e.shape;
  const places = height * width;
  const numbers = (text) => {
    const raw = bytes(text);
    const out = new Uint32Array(channels * places);
    for (let i = 0; i < out.length; i++) {
      let rank = 0;
      for (let b = e.bytes - 1; b >= 0; b--) rank = rank * 256 + raw[i * e.bytes + b];
      out[i] = rank;
    }
    return out;
  };
  const ranks = numbers(e.ranks);
  const shared = e.shared === null ? ranks : numbers(e.shared);
  const picture = e.picture === null ? null : bytes(e.picture);
  const baseline = new Uint8Array(places * 3);
  if (Array.isArray(e.baseline)) for (let i = 0; i < baseline.length; i++) baseline[i] = e.baseline[i % 3];
  else baseline.set(bytes(e.baseline));

  // When each place was first taken, and how early its values were on the whole.
  const first = new Uint32Array(places);
  const importance = new Float32Array(places);
  {
    const last = ranks.reduce((a, b) => Math.max(a, b), 0);
    const earlier = new Uint32Array(last + 2);
    for (const rank of ranks) earlier[rank + 1]++;
    for (let i = 1; i <= last; i++) earlier[i] += earlier[i - 1];
    const most = earlier[last];
    for (let p = 0; p < places; p++) {
      let least = ranks[p], sum = 0;
      for (let c = 0; c < channels; c++) {
        const rank = ranks[c * places + p];
        if (rank < least) least = rank;
        sum += earlier[Math.min(shared[c * places + p], last)];
      }
      first[p] = least;
      importance[p] = 1 - sum / channels / Math.max(most, 1);
    }
  }

  const ramp = (text) => {
    const stops = text.split(" ").map((h) => [0, 2, 4].map((i) => parseInt(h.slice(i, i + 2), 16)));
    const table = new Uint8Array(256 * 3);
    for (let i = 0; i < 256; i++) {
      const t = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(t), stops.length - 2);
      for (let c = 0; c < 3; c++)
        table[3 * i + c] = Math.round(stops[low][c] + (t - low) * (stops[low + 1][c] - stops[low][c]));
    }
    return table;
  };
  const cividis = ramp("00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838");
  const viridis = ramp("440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725");

  const canvas = $("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const out = image.data.fill(255);

  const last = e.order.last;
  // Where a number lies on the scale of the order: 0 for the first, 1 for the last.
  const along = (number) => Math.sqrt((number - 1) / (last - 1));
  const unselected = ranks.some((rank) => rank >= e.selected);
  const neverTaken = first.some((rank) => rank >= e.selected);

  const paint = {
    kept(k) {
      for (let p = 0; p < places; p++)
        for (let c = 0; c < 3; c++) {
          let weight = 0;
          if (channels === 3 || channels === 1) weight = ranks[(channels === 3 ? c : 0) * places + p] < k ? 1 : 0;
          else {
            for (let d = 0; d < channels; d++) if (ranks[d * places + p] < k) weight++;
            weight /= channels;
          }
          if (e.removing) weight = 1 - weight;
          const whole = picture ? picture[3 * p + c] : 255;
          out[4 * p + c] = Math.round(weight * whole + (1 - weight) * baseline[3 * p + c]);
        }
    },
    photo() {
      for (let p = 0; p < places; p++) for (let c = 0; c < 3; c++) out[4 * p + c] = picture[3 * p + c];
    },
    heat() {
      for (let p = 0; p < places; p++) {
        const level = 3 * Math.round(255 * importance[p]);
        for (let c = 0; c < 3; c++) out[4 * p + c] = cividis[level + c];
      }
    },
    overlay(_, opacity) {
      for (let p = 0; p < places; p++) {
        const gray = 0.299 * picture[3 * p] + 0.587 * picture[3 * p + 1] + 0.114 * picture[3 * p + 2];
        const level = 3 * Math.round(255 * importance[p]);
        for (let c = 0; c < 3; c++)
          out[4 * p + c] = Math.round(opacity * viridis[level + c] + (1 - opacity) * gray);
      }
    },
    order(k) {
      for (let p = 0; p < places; p++) {
        if (first[p] >= k || first[p] >= e.selected) {
          out[4 * p] = out[4 * p + 1] = out[4 * p + 2] = 184;
          continue;
        }
        const level = 3 * Math.round(255 * (1 - Math.min(along(first[p] + 1), 1)));
        for (let c = 0; c < 3; c++) out[4 * p + c] = viridis[level + c];
      }
    },
  };

  // State and what shows it.
  const slider = $("k");
  const opacity = $("opacity");
  slider.max = e.stops.length - 1;
  // The last stop that holds no more than a share; single values are counted to the nearest.
  const within = (share) => {
    const room = share * e.n + (e.elements ? 0.5 : 1e-6);
    return e.stops.findLastIndex(([, kept]) => kept <= room);
  };
  // The share of the first button that leads to a stop; undefined where none does, or to nothing.
  const shares = [...document.querySelectorAll(".preset")].map((button) => +button.dataset.share);
  const preset = (stop) => (stop === 0 ? undefined : shares.find((share) => within(share) === stop));
  let view = "kept";
  slider.value = Math.max(within(0.1), 1);

  const told = () => {
    const [k, kept] = e.stops[+slider.value];
    const share = kept / e.n;
    let text = `${percent(share)}: ${count(kept)} of ${count(e.n)} values${e.removing ? " switched off" : ""}`;
    if (!e.elements) text += ` (${count(k)} ${e.word[k === 1 ? 0 : 1]})`;
    // At a button's share a curve shows the features that fit into it, though they hold a little less.
    const asked = preset(+slider.value) ?? share;
    const value = e.curve && read(e.curve[0], e.curve[1], asked);
    if (value !== null) {
      text += `. ${e.label} ${value.toFixed(3)}`;
      if (e.whole !== null) {
        const higher = value > Math.max(e.whole, e.bare ?? 0) + 0.01;
        text += ` (whole photo ${e.whole.toFixed(3)}`;
        text += higher ? ": a part gives a higher probability)" : ")";
      }
    }
    if (k > e.selected && unselected) text += `. Beyond ${count(e.selected)} the order is by the last score only`;
    $("told").textContent = text + ".";
    slider.setAttribute("aria-valuetext", text);
    markCharts(asked);
  };

  const legend = () => {
    const shown = view !== "kept" && view !== "photo";
    $("key").hidden = !shown;
    $("key-note").hidden = true;
    if (!shown) return;
    drawRamp();
    const done = e.once ? "ranked" : "selected";
    let ticks = [[`0, ${done} last`, 0], [`1, ${done} first`, 1]];
    const notes = [];
    if (view === "order") {
      ticks = e.order.ticks.map((number) => [count(number), along(number)]);
      notes.push(`${e.once ? "Ranked" : "Selected"} as number … of ${count(e.count)}; square-root scale`);
      notes.push(`Gray: beyond the slider${neverTaken ? ", or selected in no round" : ""}`);
    } else {
      if (unselected) notes.push("Features that no round selected are ranked by their last score");
    }
    $("ticks").replaceChildren(...ticks.map(([text, place]) => {
      const tick = document.createElement("span");
      tick.textContent = text;
      tick.style.left = `${100 * place}%`;
      return tick;
    }));
    $("key-note").textContent = notes.map((note) => note + ".").join(" ");
    $("key-note").hidden = notes.length === 0;
  };

  // The colours as the view shows them; of the overlay at its opacity, over gray.
  const ramps = $("ramp").getContext("2d");
  const drawRamp = () => {
    const strip = ramps.createImageData(256, 1);
    const colours = view === "heat" ? cividis : viridis;
    const over = view === "overlay" ? +opacity.value / 100 : 1;
    for (let i = 0; i < 256; i++) {
      const level = 3 * (view === "order" ? 255 - i : i);
      for (let c = 0; c < 3; c++)
        strip.data[4 * i + c] = Math.round(over * colours[level + c] + (1 - over) * 128);
      strip.data[4 * i + 3] = 255;
    }
    ramps.putImageData(strip, 0, 0);
  };

  const draw = () => {
    paint[view](e.stops[+slider.value][0], +opacity.value / 100);
    context.putImageData(image, 0, 0);
  };
  const update = () => { draw(); told(); };

  slider.addEventListener("input", update);
  opacity.addEventListener("input", () => { draw(); drawRamp(); });
  document.querySelectorAll(".preset").forEach((button) =>
    button.addEventListener("click", () => { slider.value = within(+button.dataset.share); update(); }));

  // Tabs: arrows move, as in the ARIA pattern.
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const show = (tab) => {
    view = tab.dataset.view;
    for (const other of tabs) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    $("view").setAttribute("aria-labelledby", tab.id);
    $("hint").textContent = tab.dataset.hint;
    $("k-control").hidden = view !== "kept" && view !== "order";
    $("opacity-control").hidden = view !== "overlay";
    legend();
    draw();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      show(next);
    });
  });

  // A place's rank, by pointer or by arrow keys.
  const cross = $("cross");
  let at = [Math.floor(height / 2), Math.floor(width / 2)];
  const names = channels === 3 ? ["red", "green", "blue"] : [];
  const roundOf = (rank) => {
    const round = e.ends.findIndex((end) => rank < end);
    return round < 0 ? "never selected; ranked by the last score" : `round ${round + 1}`;
  };
  const inspect = (row, column) => {
    at = [Math.min(Math.max(row, 0), height - 1), Math.min(Math.max(column, 0), width - 1)];
    const p = at[0] * width + at[1];
    const rank = first[p];
    let text = `Row ${at[0] + 1}, column ${at[1] + 1}: ` +
      `${e.once ? "ranked" : "first selected"} as number ${count(rank + 1)} of ${count(e.count)} ${e.word[1]} ` +
      `(top ${percent((rank + 1) / e.count)}${e.once ? "" : `; ${roundOf(rank)}`})`;
    if (e.elements && names.length) {
      text += ". " + names.map((name, c) => `${name} ${count(ranks[c * places + p] + 1)}`).join(", ");
    }
    $("place").textContent = text + ".";
    cross.hidden = false;
    cross.style.left = `${(100 * (at[1] + 0.5)) / width}%`;
    cross.style.top = `${(100 * (at[0] + 0.5)) / height}%`;
  };
  const pointed = (event) => {
    const box = canvas.getBoundingClientRect();
    inspect(Math.floor(((event.clientY - box.top) / box.height) * height),
      Math.floor(((event.clientX - box.left) / box.width) * width));
  };
  canvas.addEventListener("pointermove", pointed);
  canvas.addEventListener("pointerdown", pointed);
  canvas.addEventListener("keydown", (event) => {
    const big = event.shiftKey ? 10 : 1;
    const step = { ArrowUp: [-big, 0], ArrowDown: [big, 0], ArrowLeft: [0, -big], ArrowRight: [0, big] }[event.key];
    if (!step) return;
    event.preventDefault();
    inspect(at[0] + step[0], at[1] + step[1]);
  });

  // Play: from nothing to everything, on request only.
  const play = $("play");
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.setAttribute("aria-pressed", "false");
    play.textContent = "Play";
  };
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (+slider.value >= +slider.max) slider.value = 0;
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = +slider.value + 1;
      update();
      if (+slider.value >= +slider.max) stop();
    }, 70);
  });
  slider.addEventListener("pointerdown", () => { if (timer !== null) stop(); });

  update();
})();

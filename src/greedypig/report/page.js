"use strict";
// Draws pictures from the ranks in the page, moves markers on charts, and sorts, filters and saves
// tables. No network, no storage, no markup made from text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const count = (n) => n.toLocaleString("en-US");
  const percent = (f) => {
    const p = 100 * f;
    return (p >= 99.95 ? p.toPrecision(4) : p === 0 ? "0" : p.toPrecision(3)).replace(/\.?0+$/, (z, i, s) =>
      s.includes(".") ? "" : z) + " %";
  };
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const button = (text, label, action) => {
    const made = make("button", text, { type: "button", "aria-label": `${text}: ${label}`, title: label });
    made.addEventListener("click", () => action(made));
    return made;
  };

  // Saving and copying.
  const save = (name, blob) => {
    const link = make("a", "", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const saveText = (name, text) => save(name, new Blob([text], { type: "text/plain;charset=utf-8" }));
  const copy = async (text, from) => {
    const before = from.textContent;
    try {
      await navigator.clipboard.writeText(text);
      from.textContent = "Copied";
    } catch {
      saveText("list.py", text);  // Where a page may not use the clipboard.
    }
    setTimeout(() => { from.textContent = before; }, 1500);
  };
  const csv = (rows) => rows.map((row) => row.map((cell) =>
    /[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell).join(",") + "\n").join("");
  const fileName = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40);

  // Tables: sorted by their heads, filtered by a text, and saved as they are shown.
  const numeric = (text) => Number.parseFloat(text.replaceAll("−", "-").replace(/[,<>\s]/g, ""));
  const tools = (table) => {
    const heads = all("thead th", table), body = table.tBodies[0], rows = [...body.rows];
    const titles = heads.map((head) => head.textContent.trim());
    const cell = (row, i) => row.cells[i].textContent.trim().replace(/\s+/g, " ");
    const shown = () => [...body.rows].filter((row) => !row.hidden);
    const value = (text) => (/^[−-]?[\d.,]+(e[−+-]?\d+)?$/.test(text) ? numeric(text) : text);
    const name = fileName(table.caption.textContent);

    heads.forEach((head, i) => {
      const sorter = button(titles[i], "sort by this column", () => {
        const turn = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        const text = rows.some((row) => Number.isNaN(numeric(cell(row, i))) && cell(row, i) !== "–");
        const key = (row) => (text ? cell(row, i) : numeric(cell(row, i)) || 0);
        const order = (a, b) => (text ? a.localeCompare(b, "en", { numeric: true }) : a - b);
        body.append(...[...rows].sort((a, b) => turn * order(key(a), key(b))));
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", turn > 0 ? "ascending" : "descending");
      });
      sorter.className = "sort";
      head.replaceChildren(sorter);
    });

    const filter = make("input", "", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${table.caption.textContent}` });
    const told = make("output", "");
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      told.textContent = wanted ? `${count(shown().length)} of ${count(rows.length)} rows` : "";
    });
    const bar = make("div", "", { class: "tools" });
    const column = Number(table.dataset.list);
    bar.append(
      filter,
      button("CSV", "save these rows", () =>
        saveText(`${name}.csv`, csv([titles, ...shown().map((row) => titles.map((_, i) => cell(row, i)))]))),
      button("JSON", "save these rows", () =>
        saveText(`${name}.json`, JSON.stringify(shown().map((row) =>
          Object.fromEntries(titles.map((title, i) => [title, value(cell(row, i))]))), null, 1))),
      button("Copy list", `“${titles[column]}” as a Python list`, (from) =>
        copy(JSON.stringify(shown().map((row) => value(cell(row, column)))), from)),
      told,
    );
    table.closest(".wide").before(bar);
  };
  all("table[data-list]").forEach(tools);

  // Charts: pointing reads values, clicking and dragging move the slider of the page.
  // Straight lines between measured points; null outside of them.
  const read = (xs, ys, x) => {
    if (x < xs[0] || x > xs[xs.length - 1]) return null;
    let i = 1;
    while (i < xs.length - 1 && xs[i] < x) i++;
    const step = xs[i] - xs[i - 1];
    return step === 0 || xs.length < 2 ? ys[Math.min(i, ys.length - 1)] : ys[i - 1] + ((x - xs[i - 1]) / step) * (ys[i] - ys[i - 1]);
  };
  const mark = (chart, place) => {
    const svg = $(chart.id);
    const [left, top, width, height] = chart.box;
    const [low, high] = chart.range;
    const x = left + ((place - chart.ends[0]) / (chart.ends[1] - chart.ends[0])) * width;
    svg.classList.add("live");
    const marker = svg.querySelector(".marker");
    marker.setAttribute("x1", x);
    marker.setAttribute("x2", x);
    const said = [];
    all(".dot", svg).forEach((dot, i) => {
      const line = chart.lines[i];
      const value = read(line.x, line.y, place);
      dot.setAttribute("cx", value === null ? -9 : x);
      dot.setAttribute("cy", value === null ? -9 : top + ((high - value) / (high - low)) * height);
      if (value !== null) said.push(`${line.label} ${value.toFixed(3).replace("-", "−")}`);
    });
    const there = chart.places ? `k = ${place}` : chart.counted ? `${place} ${chart.counted}` : percent(place);
    svg.parentNode.querySelector(".read").textContent = `At ${there}: ${said.join("; ")}`;
  };
  // The share at which the page is, and what moves it there. A chart may count what it is a share of.
  let current = null, follow = null;
  const markCharts = (share) => {
    for (const chart of data.charts)
      if (!chart.places) mark(chart, chart.counted ? Math.round(share * chart.ends[1]) : share);
  };
  const settle = (share) => { current = share; markCharts(share); };
  for (const chart of data.charts) {
    const svg = $(chart.id);
    const placeAt = (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const part = Math.min(1, Math.max(0, (at - chart.box[0]) / chart.box[2]));
      if (!chart.places) return part;
      const place = chart.ends[0] + part * (chart.ends[1] - chart.ends[0]);
      return chart.places.reduce((best, k) => (Math.abs(k - place) < Math.abs(best - place) ? k : best));
    };
    const point = (event) => {
      const place = placeAt(event);
      if (chart.places) mark(chart, place);
      else if (follow && event.buttons & 1) follow(place);
      else markCharts(place);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", (event) => {
      if (follow && !chart.places) svg.setPointerCapture(event.pointerId);
      point(event);
    });
    svg.addEventListener("pointerleave", () => { if (current !== null && !chart.places) markCharts(current); });

    const named = (ending) => `${fileName(svg.parentNode.querySelector("figcaption").textContent)}.${ending}`;
    const bar = make("div", "", { class: "tools" });
    bar.append(
      button("CSV", "save the chart’s points", () =>
        saveText(named("csv"), csv([["line", "x", "y"], ...chart.lines.flatMap((line) =>
          line.x.map((x, i) => [line.label, String(x), String(line.y[i])]))]))),
      button("PNG", "save the chart as a picture", () => savePicture(svg, chart, named("png"))),
    );
    svg.parentNode.append(bar);
  }

  // A chart with its colours written into it, as the page's style is not there when it is a picture,
  // its caption above and its legend below.
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "visibility"];
  const savePicture = (svg, chart, name) => {
    const copied = svg.cloneNode(true), { width, height } = svg.viewBox.baseVal;
    const parts = all("*", copied);
    all("*", svg).forEach((part, i) => {
      const style = getComputedStyle(part);
      for (const property of STYLES) parts[i].setAttribute(property, style.getPropertyValue(property));
    });
    copied.setAttribute("width", 2 * width);
    copied.setAttribute("height", 2 * height);
    const picture = new Image();
    picture.addEventListener("load", () => {
      const canvas = make("canvas", "", { width: 2 * width, height: 2 * height + 80 + 36 * chart.lines.length });
      const context = canvas.getContext("2d"), page = getComputedStyle(document.body);
      context.fillStyle = getComputedStyle(svg.closest("section") ?? document.body).backgroundColor;
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(picture, 0, 50);
      context.fillStyle = page.color;
      context.font = `bold 26px ${page.fontFamily}`;
      context.fillText(svg.parentNode.querySelector("figcaption").textContent, 24, 36, canvas.width - 48);
      context.font = `24px ${page.fontFamily}`;
      all(".line", svg).forEach((line, i) => {
        const style = getComputedStyle(line), y = 2 * height + 80 + 36 * i;
        context.strokeStyle = style.stroke;
        context.lineWidth = 5;
        context.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map((dash) => 2 * parseFloat(dash)));
        context.beginPath();
        context.moveTo(128, y);
        context.lineTo(192, y);
        context.stroke();
        context.fillText(chart.lines[i].label, 210, y + 8);
      });
      canvas.toBlob((blob) => save(name, blob));
    });
    picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copied))}`;
  };

  const bytes = async (text) => {
    const packed = new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]);
    const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  // A picture holds differences to the pixel before; a baseline may be one colour.
  const levels = async (colours, places) => {
    if (Array.isArray(colours)) return Uint8Array.from({ length: 3 * places }, (_, i) => colours[i % 3]);
    const all = await bytes(colours);
    for (let i = 3; i < all.length; i++) all[i] += all[i - 3];
    return all;
  };
  const busy = async (section, work) => {
    section.setAttribute("aria-busy", "true");
    try {
      await work;
    } catch (error) {
      section.prepend(make("p", `This browser cannot draw the picture: ${error.message}`, { class: "warn" }));
    }
    section.removeAttribute("aria-busy");
  };
  const pointedAt = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor(((event.clientY - box.top) / box.height) * canvas.height),
      Math.floor(((event.clientX - box.left) / box.width) * canvas.width)];
  };

  // A plain slider over the charts, where there is no picture to move.
  const plain = $("share");
  if (plain) {
    follow = (share) => { plain.value = 100 * share; settle(share); };
    plain.addEventListener("input", () => settle(plain.value / 100));
    settle(plain.value / 100);
  }

  // The edges of a node, one after the other.
  const grown = $("grow");
  if (grown) {
    const grow = () => {
      const shown = Number(grown.value);
      for (const part of all("[data-edge]"))
        part.classList.toggle("later", Number(part.dataset.edge) > shown);
      const value = data.grow.values[shown];
      const text = `${count(shown)} of ${grown.max} edges` +
        (value === undefined ? "" : `: ${data.grow.label} ${value.toFixed(3)}`) +
        `; all edges ${data.grow.full.toFixed(3)}`;
      $("grown").textContent = text;
      grown.setAttribute("aria-valuetext", text);
      settle(shown / Number(grown.max));
    };
    follow = (share) => { grown.value = Math.round(share * grown.max); grow(); };
    grown.addEventListener("input", grow);
    grow();
  }

  // The parts of a text: how many are kept, by which method, and what the model then gives.
  const words = (t) => {
    const slider = $("parts-k"), chosen = $("parts-method"), region = $("passage");
    const elements = new Map(all("[data-part]").map((part) => [Number(part.dataset.part), part]));
    const first = chosen ? chosen.selectedIndex : 0;
    let method, places, at = 0;
    const shown = (g) => (Math.abs(g) >= 100 ? g.toFixed(1) : g.toFixed(3)).replace("-", "−");
    const value = (g) => (!t.log ? shown(g) : `${shown(g)}` +
      (t.tokens > 1 ? ` (${Math.exp(g / t.tokens).toFixed(3)} a token)` : ` (probability ${Math.exp(g).toFixed(3)})`));
    const choose = (i) => {
      method = t.methods[i];
      places = new Map(method.order.map((feature, place) => [feature, place + 1]));
    };
    const draw = () => {
      const k = t.stops[Number(slider.value)];
      for (const [feature, part] of elements) {
        const place = places.get(feature) ?? Infinity, on = place <= k;
        part.className = on ? `part on g${method.levels[place - 1] ?? 1}` : "part off";
        part.dataset.place = on ? place : "";
      }
      const about = method.counts.includes(k) ? "" : "about ";
      const values = t.titles.map((title, i) => {
        const g = method.counts.length > 1 ? read(method.counts, method.values[i], k) : null;
        return g === null ? null : `${title} ${about}${value(g)}`;
      }).filter(Boolean);
      const whole = method.values[0].at(-1);
      if (whole !== undefined && values.length) values.push(`all ${t.unit[1]} ${value(whole)}`);
      const text = `${count(k)} of ${count(t.count)} ${t.unit[t.count === 1 ? 0 : 1]}` +
        (k === method.enough ? `, which is enough (${t.rise})` : "") + (values.length ? `: ${values.join("; ")}` : "");
      $("parts-told").textContent = `${text}.`;
      slider.setAttribute("aria-valuetext", text);
      if (!chosen || chosen.selectedIndex === first) settle(k / t.count);
    };
    const inspect = (part) => {
      for (const other of all(".part.at")) other.classList.remove("at");
      part.classList.add("at");
      const place = places.get(Number(part.dataset.part)), twin = part.dataset.twin;
      at = place ?? at;
      const late = place > t.selected && (!chosen || chosen.selectedIndex === first);
      const text = part.textContent.replace(/\s+/g, " ");
      $("parts-place").textContent = `“${text.length > 90 ? `${text.slice(0, 89)}…` : text}”: ` +
        (place === undefined ? "not among the first" : `number ${count(place)} of ${count(t.count)} by ${method.name}`) +
        (late ? ", ranked by the last score only" : "") + (twin ? `; like number ${twin}` : "") + tip(place) + ".";
    };
    const tip = (place) => (place !== undefined && (!chosen || chosen.selectedIndex === first) && t.tips[place - 1]
      ? `; ${t.tips[place - 1]}` : "");
    slider.addEventListener("input", draw);
    const nearest = (k) => t.stops.reduce((best, stop, i) => (Math.abs(stop - k) < Math.abs(t.stops[best] - k) ? i : best), 0);
    follow = (share) => { slider.value = nearest(share * t.count); draw(); };
    if (chosen) chosen.addEventListener("input", () => { choose(chosen.selectedIndex); draw(); });
    region.addEventListener("pointerover", (event) => {
      const part = event.target.closest("[data-part]");
      if (part) inspect(part);
    });
    region.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const part = step && elements.get(method.order[at + step - 1]);
      if (!step) return;
      event.preventDefault();
      if (!part) return;
      inspect(part);
      part.scrollIntoView({ block: "nearest" });
    });
    choose(first);
    draw();
  };
  if (data.text) words(data.text);

  // Methods side by side: one slider for all pictures.
  const compare = async (c) => {
    const [channels, height, width] = c.shape, places = height * width;
    const picture = await levels(c.picture), baseline = await levels(c.baseline, places);
    const slider = $("compare-k"), faded = $("faded");
    const curve = data.charts.find((chart) => chart.id === "curve-methods");
    const stops = await Promise.all(c.stops.map(bytes));
    const methods = c.methods.map((name, i) => {
      const stop = stops[i], line = curve && curve.lines.find(({ label }) => label === name);
      const canvas = $(`method-${i}`), context = canvas.getContext("2d");
      canvas.width = width;
      canvas.height = height;
      return { name, line, stop, canvas, context, image: context.createImageData(width, height), told: $(`method-${i}-told`) };
    });
    const draw = () => {
      const at = Number(slider.value), share = c.shares[at];
      for (const method of methods) {
        const out = method.image.data;
        for (let p = 0; p < places; p++) {
          const gray = 0.299 * picture[3 * p] + 0.587 * picture[3 * p + 1] + 0.114 * picture[3 * p + 2];
          for (let i = 0; i < 3; i++) {
            const kept = method.stop[(channels === 3 ? i : 0) * places + p] <= at;
            out[4 * p + i] = kept ? picture[3 * p + i] : faded.checked ? 0.35 * gray + 150 : baseline[3 * p + i];
          }
          out[4 * p + 3] = 255;
        }
        method.context.putImageData(method.image, 0, 0);
        const value = method.line ? read(method.line.x, method.line.y, share) : null;
        method.told.textContent = value === null ? "" : `${c.label} ${value.toFixed(3)}`;
      }
      const text = `${percent(share)} of the photo`;
      $("compare-told").textContent = c.whole === null ? text : `${text}; the whole photo gives ${c.whole.toFixed(3)}`;
      slider.setAttribute("aria-valuetext", text);
      settle(share);
    };
    const nearest = (share) => c.shares.reduce((best, s, i) =>
      (Math.abs(s - share) < Math.abs(c.shares[best] - share) ? i : best), 0);
    follow = (share) => { slider.value = nearest(share); draw(); };
    slider.addEventListener("input", draw);
    faded.addEventListener("input", draw);
    for (const { canvas } of methods) canvas.addEventListener("pointermove", (event) => {
      const [row, column] = pointedAt(canvas, event), p = row * width + column;
      if (p < 0 || p >= places) return;
      const first = (stop) => Math.min(...Array.from({ length: channels }, (_, i) => stop[i * places + p]));
      $("compare-place").textContent = `Row ${c.step * row + 1}, column ${c.step * column + 1}, first selected: ` +
        methods.map(({ name, stop }) => `${name} within ${percent(c.shares[first(stop)])}`).join("; ") + ".";
    });
    draw();
  };
  if (data.compare) busy($("compare-k").closest("section"), compare(data.compare));

  // One picture to explore.
  const explore = async (e) => {
    const [channels, height, width] = e.shape;
    const places = height * width;
    const ranks = new Uint32Array(channels * places);
    (await bytes(e.ranks)).forEach((byte, i) => {
      ranks[i % ranks.length] += byte * 256 ** Math.floor(i / ranks.length);
    });
    const importance = await bytes(e.importance);
    const picture = e.picture === null ? null : await levels(e.picture);
    const baseline = await levels(e.baseline, places);
    // When each place was first taken.
    const first = ranks.slice(0, places);
    for (let i = places; i < ranks.length; i++) first[i % places] = Math.min(first[i % places], ranks[i]);

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
    // The overlay: its colours are lighter than the gray photo, which is dimmed.
    const bright = ramp("2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725"), DIM = 0.6;

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

    // Lines between regions of which one is among the top k.
    const outline = (k) => {
      for (let p = 0; p < places; p++) {
        const beside = [p % width < width - 1 ? p + 1 : p, p + width < places ? p + width : p];
        if (beside.some((q) => first[q] !== first[p] && Math.min(first[p], first[q]) < k))
          out[4 * p] = out[4 * p + 1] = out[4 * p + 2] = 255;
      }
    };
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
        for (let p = 0; p < places; p++)
          for (let c = 0; c < 3; c++) out[4 * p + c] = cividis[3 * importance[p] + c];
      },
      overlay(k, opacity) {
        for (let p = 0; p < places; p++) {
          const gray = 0.299 * picture[3 * p] + 0.587 * picture[3 * p + 1] + 0.114 * picture[3 * p + 2];
          const over = first[p] < k ? opacity : 0;
          for (let c = 0; c < 3; c++)
            out[4 * p + c] = Math.round(over * bright[3 * importance[p] + c] + (1 - over) * DIM * gray);
        }
        if (e.outlined) outline(k);
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
        if (e.outlined) outline(Math.min(k, e.selected));
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
    // The share that leads to a stop where it was measured; undefined where none does, or to nothing.
    const shares = [e.start, ...all(".preset").map((preset) => +preset.dataset.share)];
    const measured = (stop) => (stop === 0 ? undefined : shares.find((share) => within(share) === stop));
    const tabs = all("[role=tab]");
    let view = tabs.find((tab) => tab.getAttribute("aria-selected") === "true").dataset.view;
    slider.value = Math.max(within(e.start), 1);

    const tell = () => {
      const [k, kept] = e.stops[+slider.value];
      const share = kept / e.n;
      let text = `${percent(share)}: ${count(kept)} of ${count(e.n)} values${e.removing ? " switched off" : ""}`;
      if (!e.elements) text += ` (${count(k)} ${e.word[k === 1 ? 0 : 1]})`;
      // At a measured share a curve shows the features that fit into it, though they hold a little less.
      const asked = measured(+slider.value) ?? share;
      const value = e.curve && read(e.curve[0], e.curve[1], asked);
      if (value !== null) {
        text += `. ${e.label} ${value.toFixed(3)}`;
        if (e.whole !== null) text += ` (whole photo ${e.whole.toFixed(3)})`;
      }
      if (k > e.selected && unselected) text += `. Beyond ${count(e.selected)} the order is by the last score only`;
      $("told").textContent = text + ".";
      slider.setAttribute("aria-valuetext", text);
      settle(asked);
    };

    const legend = () => {
      const shown = view !== "kept" && view !== "photo";
      $("key").hidden = !shown;
      $("key-note").hidden = true;
      if (!shown) return;
      drawRamp();
      let ticks = [["0: nothing left to gain", 0], [`1: ${e.once ? "ranked" : "selected"} first`, 1]];
      const notes = [];
      if (view === "order") {
        ticks = e.order.ticks.map((number) => [count(number), along(number)]);
        notes.push(`${e.once ? "Ranked" : "Selected"} as number … of ${count(e.count)}; square-root scale`);
        notes.push(`Gray: beyond the slider${neverTaken ? ", or selected in no round" : ""}`);
      } else if (unselected) notes.push("Features that no round selected have importance 0");
      $("ticks").replaceChildren(...ticks.map(([text, place]) => {
        const tick = make("span", text);
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
      const colours = { heat: cividis, order: viridis, overlay: bright }[view];
      const over = view === "overlay" ? +opacity.value / 100 : 1;
      for (let i = 0; i < 256; i++) {
        const level = 3 * (view === "order" ? 255 - i : i);
        for (let c = 0; c < 3; c++)
          strip.data[4 * i + c] = Math.round(over * colours[level + c] + (1 - over) * DIM * 128);
        strip.data[4 * i + 3] = 255;
      }
      ramps.putImageData(strip, 0, 0);
    };

    const draw = () => {
      paint[view](e.stops[+slider.value][0], +opacity.value / 100);
      context.putImageData(image, 0, 0);
    };
    const update = () => { draw(); tell(); };
    const jump = (share) => { slider.value = within(share); update(); };
    follow = jump;
    slider.addEventListener("input", update);
    opacity.addEventListener("input", () => { draw(); drawRamp(); });
    for (const preset of all(".preset")) preset.addEventListener("click", () => jump(+preset.dataset.share));
    $("save").addEventListener("click", () => canvas.toBlob((blob) => save(`${view}.png`, blob)));

    // Tabs: arrows move, as in the ARIA pattern.
    const show = (tab) => {
      view = tab.dataset.view;
      for (const other of tabs) {
        other.setAttribute("aria-selected", String(other === tab));
        other.tabIndex = other === tab ? 0 : -1;
      }
      $("view").setAttribute("aria-labelledby", tab.id);
      $("hint").textContent = tab.dataset.hint;
      $("k-control").hidden = view === "photo" || view === "heat";
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
      let text = `Row ${e.step * at[0] + 1}, column ${e.step * at[1] + 1}: ` +
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
    const pointed = (event) => inspect(...pointedAt(canvas, event));
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

    legend();
    update();
  };
  if (data.explore) busy($("k").closest("section"), explore(data.explore));
})();

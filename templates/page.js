"use strict";
// Draws the charts of the JSON in #charts with uPlot. See Chart in distlaunch/ui/page.py.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const HEIGHT = 280;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const colourOf = (series) => colour(`c${series.colour % 8}`);
  const text = (value) => (value == null ? "–" : String(Number(value.toPrecision(4))));

  /* Each part on top of those before it; the highest is drawn first. */
  function stack(series) {
    const sums = [];
    return series.map(({ys}) => ys.map((y, i) => (sums[i] = (sums[i] || 0) + (y || 0)))).reverse();
  }

  /* Ranges of points and their labels. */
  function drawPoints(u, chart) {
    const {ctx} = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const series of chart.series) {
      ctx.strokeStyle = ctx.fillStyle = colourOf(series);
      series.ys.forEach((y, i) => {
        if (y == null) return;
        const x = u.valToPos(chart.xs[i], "x", true), top = u.valToPos(y, "y", true);
        if (series.ranges[i]) {
          const [left, right, low, high] = series.ranges[i].map((value, end) => u.valToPos(value, end < 2 ? "x" : "y", true));
          ctx.globalAlpha = 0.45;
          ctx.beginPath();
          ctx.moveTo(left, top);
          ctx.lineTo(right, top);
          ctx.moveTo(x, low);
          ctx.lineTo(x, high);
          ctx.stroke();
          ctx.globalAlpha = 1;
        }
        if (series.labels[i]) ctx.fillText(series.labels[i], x + 7 * devicePixelRatio, top - 7 * devicePixelRatio);
      });
    }
    ctx.restore();
  }

  function drawMark(u, [x, label]) {
    const {ctx} = u, left = u.valToPos(x, "x", true);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("soft");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, u.bbox.top);
    ctx.lineTo(left, u.bbox.top + u.bbox.height);
    ctx.stroke();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    const isRight = left > u.bbox.left + u.bbox.width / 2;
    ctx.textAlign = isRight ? "right" : "left";
    ctx.fillText(label, left + (isRight ? -6 : 6) * devicePixelRatio, u.bbox.top + 14 * devicePixelRatio);
    ctx.restore();
  }

  /* Whether values are positive and differ so much that a logarithmic axis shows more; null if they may not. */
  function spansSizes(values) {
    const known = values.filter((value) => value != null), low = Math.min(...known);
    return low > 0 ? Math.max(...known) > 8 * low : null;
  }

  function options(chart, isLog, isLogX, width) {
    const isStack = chart.style === "stack", isPoints = chart.style === "points";
    const ordered = isStack ? [...chart.series].reverse() : chart.series;
    const series = ordered.map((each) => ({
      label: each.name,
      stroke: colourOf(each),
      width: isStack ? 0 : 2,
      dash: each.is_dashed ? [6, 4] : undefined,
      fill: isStack ? colourOf(each) : undefined,
      paths: isStack ? uPlot.paths.bars({size: [0.9, 60]}) : isPoints ? () => null : undefined,
      points: {show: isPoints || (!isStack && chart.xs.length < 40), size: isPoints ? 9 : 5, fill: colourOf(each)},
      spanGaps: true,
      value: (u, value, _, i) => text(i == null ? null : each.ys[i]),
    }));
    const isWhole = chart.x_labels.length || chart.xs.every(Number.isInteger);
    const format = (u, splits) => splits.map((value) => (value == null ? "" : text(value)));
    const named = (u, splits) => splits.map((value) => chart.x_labels[value] ?? "");
    const powers = (u, splits) => splits.map((value) => (Math.log10(value) % 1 ? null : value));
    const axis = {stroke: colour("soft"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1}, labelSize: 18, labelGap: 0, values: format};
    const pad = isWhole ? (u, low, high) => [low - 0.5, high + 0.5] : (u, low, high) => [low - (high - low || 1) / 20, high + (high - low || 1) / 20];
    const x = {time: false, ...(isLogX ? {distr: 3} : {range: pad})};
    const y = isLog ? {distr: 3} : isStack ? {range: [0, 100]} : {};
    const reach = chart.series.flatMap((each) => each.ranges).filter(Boolean);
    if (reach.length) {
      const span = (low, high) => [Math.min(...reach.map((r) => r[low])), Math.max(...reach.map((r) => r[high]))];
      const [left, right] = span(0, 1), [bottom, top] = span(2, 3);
      x.range = () => (isLogX ? uPlot.rangeLog(left, right, 10, false) : [0, right * 1.05]);
      y.range = () => (isLog ? uPlot.rangeLog(bottom, top, 10, false) : [0, top * 1.05]);
    }
    return {
      width, height: HEIGHT, series: [{label: chart.x, value: (u, v, _, i) => (i == null ? "–" : chart.x_labels[v] ?? text(v))}, ...series],
      scales: {x, y},
      axes: [
        {...axis, label: chart.x, space: 55, size: 32, incrs: isWhole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 1e5] : undefined, values: chart.x_labels.length ? named : format},
        {...axis, label: chart.y, size: (u, labels) => 18 + 7 * Math.max(0, ...(labels || []).map((each) => each.length)), ...(isLog ? {grid: {...axis.grid, filter: powers}} : {})},
      ],
      legend: {show: series.length > 1 || !isPoints, live: !isPoints},
      cursor: {drag: {x: !isPoints, y: false}},
      hooks: {ready: [(u) => isPoints || u.setLegend({idx: chart.xs.length - 1}, false)], draw: [(u) => {
        if (isPoints) drawPoints(u, chart);
        if (chart.mark) drawMark(u, chart.mark);
      }]},
    };
  }

  function draw(box) {
    const chart = charts[box.dataset.chart], ranges = chart.series.flatMap((each) => each.ranges);
    const ys = chart.style === "stack" ? stack(chart.series) : chart.series.map((each) => each.ys);
    const isLogX = chart.logarithmic.includes("x") && spansSizes([...chart.xs, ...ranges.flatMap((r) => r.slice(0, 2))]);
    let isLog = chart.logarithmic.includes("y") ? spansSizes([...ys.flat(), ...ranges.flatMap((r) => r.slice(2))]) : null;
    let plot = null, width = 0;
    const redraw = () => {
      if (plot) plot.destroy();
      plot = width ? new uPlot(options(chart, isLog, isLogX, width), [chart.xs, ...ys], box) : null; // 0: folded
    };
    if (isLog !== null) {
      const label = document.createElement("label"), check = document.createElement("input");
      Object.assign(check, {type: "checkbox", checked: isLog, onchange: () => { isLog = check.checked; redraw(); }});
      label.append(check, " log scale");
      box.previousElementSibling.append(label);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(() => {
      if (box.clientWidth === width) return;
      width = box.clientWidth;
      redraw();
    }).observe(box);
  }

  document.querySelectorAll(".chart").forEach(draw);
})();

// Dialogs that ask for values, or whether something is meant.

import { h } from "./dom.js";

function run(dialog, read) {
  document.body.append(dialog);
  return new Promise(resolve => {
    dialog.addEventListener("close", () => {
      const value = dialog.returnValue === "yes" ? read() : null;
      dialog.remove();
      resolve(value);
    });
    dialog.showModal();
  });
}

function form(dialog, title, content, yes, danger) {
  dialog.append(h("form", { onsubmit: event => { event.preventDefault(); dialog.close("yes"); } },
    h("h2", { id: "dialog-title" }, title), content,
    h("div", { class: "row" },
      h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      h("button", { type: "submit", class: danger ? "danger" : "main", id: "dialog-yes" }, yes))));
  return dialog;
}

// fields: { name, label, value, required, long, options, type }; null if the user thinks better of it.
export function ask(title, fields, yes) {
  const inputs = fields.map(one => {
    const shared = { id: `field-${one.name}`, name: one.name, required: one.required, autocomplete: one.autocomplete ?? "off", spellcheck: "false" };
    const input = one.options ? h("select", shared, one.options.map(([value, text]) => h("option", { value }, text)))
      : one.long ? h("textarea", shared) : h("input", { ...shared, type: one.type ?? "text" });
    if (one.value != null) input.value = one.value;
    return input;
  });
  const dialog = form(h("dialog", { "aria-labelledby": "dialog-title" }), title,
    fields.map((one, at) => h("label", { for: inputs[at].id }, one.label, inputs[at])), yes, false);
  return run(dialog, () => Object.fromEntries(fields.map((one, at) => [one.name, inputs[at].value])));
}

export function confirm(title, text, yes, danger = false) {
  return run(form(h("dialog", { "aria-labelledby": "dialog-title", role: "alertdialog" }), title, h("p", {}, text), yes, danger), () => true);
}

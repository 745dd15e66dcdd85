# words.py, in the directory in which peers and `submit-job` are started, or in another that --import-from names
def split(segment, separator):
    return [{"word": word} for word in segment["line"].split(separator)]
